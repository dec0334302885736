// A program of the XLA backend with its inputs: built, verified and run by the interpreter. With
// ADDER_PJRT_PLUGIN every program runs on that plugin as well, which must agree. With
// ADDER_XLA_DUMP=FOLDER every program that a test runs is also written there with its inputs and
// results, for tools/run_stablehlo.py to give the same text to XLA.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "backends/xla/builder.h"
#include "backends/xla/executor.h"
#include "core/dtype.h"
#include "testing/xla_plugin.h"

namespace adder::xla {

struct HostValue {
  Type type;
  std::vector<std::byte> bytes;
};

template <typename T>
Element element_of() {
  if constexpr (std::is_same_v<T, float>) return Element::kF32;
  if constexpr (std::is_same_v<T, int32_t>) return Element::kI32;
  if constexpr (std::is_same_v<T, uint32_t>) return Element::kU32;
  if constexpr (std::is_same_v<T, uint64_t>) return Element::kU64;
  if constexpr (std::is_same_v<T, int8_t>) return Element::kI8;
}

template <typename T>
HostValue host_bits(Element element, std::vector<int64_t> shape, const std::vector<T>& values) {
  HostValue value{{element, std::move(shape)}, {}};
  EXPECT_EQ(value.type.bytes(), values.size() * sizeof(T));
  value.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(value.bytes.data(), values.data(), value.bytes.size());
  return value;
}

template <typename T>
HostValue host(std::vector<int64_t> shape, const std::vector<T>& values) {
  return host_bits(element_of<T>(), std::move(shape), values);
}

inline HostValue host_pred(std::vector<int64_t> shape, const std::vector<uint8_t>& values) {
  return host_bits(Element::kPred, std::move(shape), values);
}

// A 16-bit float, rounded.
inline HostValue host_half(Element element, std::vector<int64_t> shape,
                           const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float v : values)
    bits.push_back(element == Element::kF16 ? f32_to_f16(v) : f32_to_bf16(v));
  return host_bits(element, std::move(shape), bits);
}

template <typename T>
std::vector<T> values(const HostValue& value) {
  std::vector<T> copy(value.bytes.size() / sizeof(T));
  if (!copy.empty()) std::memcpy(copy.data(), value.bytes.data(), value.bytes.size());
  return copy;
}

// How far XLA's results may be from the interpreter's: |x - y| <= absolute + relative * |y|.
struct XlaTolerance {
  double relative = 0, absolute = 0;
};

class ProgramCase {
 public:
  Program program;
  Builder b{program};

  Value input(HostValue value) {
    inputs_.push_back(std::move(value));
    return b.argument(inputs_.back().type);
  }

  // The results of one run, in order.
  std::vector<HostValue> run(XlaTolerance tolerance = {}) const {
    EXPECT_EQ(verify(program), "");
    std::vector<HostValue> results = run_on(*make_interpreter());
    if (Executor* plugin = plugin_under_test()) expect_near(run_on(*plugin), results, tolerance);
    if (const char* folder = std::getenv("ADDER_XLA_DUMP")) dump(folder, results, tolerance);
    return results;
  }

  // The only result, of a program that has no other.
  HostValue run_one(XlaTolerance tolerance = {}) const {
    std::vector<HostValue> results = run(tolerance);
    EXPECT_EQ(results.size(), 1u);
    return std::move(results.at(0));
  }

 private:
  std::vector<HostValue> run_on(Executor& executor) const {
    const std::unique_ptr<Executable> executable = executor.compile(program);
    std::vector<ArrayPtr> arguments;
    for (const HostValue& value : inputs_)
      arguments.push_back(executor.upload(value.type, value.bytes));
    std::vector<HostValue> results;
    for (const ArrayPtr& array : executable->run(arguments)) {
      HostValue value{array->type(), std::vector<std::byte>(array->type().bytes())};
      executor.download(*array, value.bytes);
      results.push_back(std::move(value));
    }
    return results;
  }

  // The floats of a value; of others the bytes.
  static std::vector<double> numbers(const HostValue& value) {
    std::vector<double> list;
    switch (value.type.element) {
      case Element::kF32:
        for (const float v : values<float>(value)) list.push_back(v);
        break;
      case Element::kF16:
        for (const uint16_t v : values<uint16_t>(value)) list.push_back(f16_to_f32(v));
        break;
      case Element::kBF16:
        for (const uint16_t v : values<uint16_t>(value)) list.push_back(bf16_to_f32(v));
        break;
      default:
        for (const std::byte v : value.bytes) list.push_back(static_cast<int>(v));
    }
    return list;
  }

  // NaN must meet NaN, and what is not a float must be the same.
  static void expect_near(const std::vector<HostValue>& got, const std::vector<HostValue>& want,
                          XlaTolerance tolerance) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].type, want[i].type) << "result " << i;
      const Element element = want[i].type.element;
      const bool is_float =
          element == Element::kF32 || element == Element::kF16 || element == Element::kBF16;
      const std::vector<double> x = numbers(got[i]), y = numbers(want[i]);
      for (size_t at = 0; at < x.size(); ++at) {
        const bool same = x[at] == y[at] || (std::isnan(x[at]) && std::isnan(y[at]));
        const bool near =
            is_float && std::isfinite(x[at]) && std::isfinite(y[at]) &&
            std::abs(x[at] - y[at]) <= tolerance.absolute + tolerance.relative * std::abs(y[at]);
        EXPECT_TRUE(same || near) << "plugin, result " << i << " at " << at << ": expected "
                                  << y[at] << ", got " << x[at];
      }
    }
  }

  static std::string write(const std::filesystem::path& folder, const std::string& prefix,
                           const std::vector<HostValue>& list) {
    std::string json;
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string name = prefix + std::to_string(i) + ".raw";
      std::ofstream(folder / name, std::ios::binary)
          .write(reinterpret_cast<const char*>(list[i].bytes.data()),
                 static_cast<std::streamsize>(list[i].bytes.size()));
      std::string shape;
      for (const int64_t extent : list[i].type.shape)
        shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
      json += std::string(i ? ", " : "") + R"({"file": ")" + name + R"(", "element": ")" +
              std::string(element_name(list[i].type.element)) + R"(", "shape": [)" + shape + "]}";
    }
    return "[" + json + "]";
  }

  void dump(const std::filesystem::path& root, const std::vector<HostValue>& results,
            XlaTolerance tolerance) const {
    const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::filesystem::path folder;
    for (int n = 0; folder.empty() || std::filesystem::exists(folder); ++n)
      folder = root / (std::string(test->test_suite_name()) + "." + test->name() + "." +
                       std::to_string(n));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "program.mlir") << stablehlo_text(program);
    std::ofstream json(folder / "case.json");
    json << R"({"inputs": )" << write(folder, "input", inputs_)
         << ",\n \"results\": " << write(folder, "result", results)
         << ",\n \"relative\": " << tolerance.relative << ", \"absolute\": " << tolerance.absolute
         << "}\n";
  }

  std::vector<HostValue> inputs_;
};

}  // namespace adder::xla
