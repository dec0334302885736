// The executor on a real plugin: the one that ADDER_PJRT_PLUGIN names. Programs are in the generic
// form that the emitter writes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "backends/xla/pjrt_executor.h"
#include "testing/fake_pjrt.h"

namespace adder::xla {
namespace {

// (a, b), a donated: a + b, a * b
constexpr std::string_view kSumAndProduct = R"(
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<2x3xf32>):
    %2 = "stablehlo.add"(%0, %1) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %3 = "stablehlo.multiply"(%0, %1) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    "func.return"(%2, %3) : (tensor<2x3xf32>, tensor<2x3xf32>) -> ()
  }) {function_type = (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>),
      sym_name = "main", arg_attrs = [{tf.aliasing_output = 0 : i32}, {}]} : () -> ()
}) {sym_name = "adder"} : () -> ()
)";

// n, x: x doubled n times, n
constexpr std::string_view kLoop = R"(
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%0: tensor<i32>, %1: tensor<4xf32>):
    %2 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %3:2 = "stablehlo.while"(%2, %1) ({
    ^bb0(%4: tensor<i32>, %5: tensor<4xf32>):
      %6 = "stablehlo.compare"(%4, %0) {comparison_direction = #stablehlo<comparison_direction LT>}
        : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%6) : (tensor<i1>) -> ()
    }, {
    ^bb0(%7: tensor<i32>, %8: tensor<4xf32>):
      %9 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
      %10 = "stablehlo.add"(%7, %9) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %11 = "stablehlo.add"(%8, %8) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      "stablehlo.return"(%10, %11) : (tensor<i32>, tensor<4xf32>) -> ()
    }) : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>)
    "func.return"(%3#1, %3#0) : (tensor<4xf32>, tensor<i32>) -> ()
  }) {function_type = (tensor<i32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<i32>),
      sym_name = "main"} : () -> ()
}) {sym_name = "adder"} : () -> ()
)";

// The transpose of its argument: compilers like to leave the data and change the layout.
constexpr std::string_view kTranspose = R"(
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%0: tensor<3x5xf32>):
    %1 = "stablehlo.transpose"(%0) {permutation = array<i64: 1, 0>}
      : (tensor<3x5xf32>) -> tensor<5x3xf32>
    "func.return"(%1) : (tensor<5x3xf32>) -> ()
  }) {function_type = (tensor<3x5xf32>) -> tensor<5x3xf32>, sym_name = "main"} : () -> ()
}) {sym_name = "adder"} : () -> ()
)";

Type f32(std::vector<int64_t> shape) {
  return {Element::kF32, std::move(shape)};
}
const Type kScalarI32{Element::kI32, {}};

Signature sum_signature() {
  return {{f32({2, 3}), f32({2, 3})}, {f32({2, 3}), f32({2, 3})}, {0, -1}};
}

class RealPluginProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::getenv("ADDER_PJRT_PLUGIN") == nullptr) GTEST_SKIP() << "ADDER_PJRT_PLUGIN is not set";
  }

  static PjrtExecutor make() { return PjrtExecutor(load_plugin(plugin_candidates("").at(0))); }

  template <typename T>
  static ArrayPtr upload(Executor& executor, Type type, const std::vector<T>& values) {
    return executor.upload(std::move(type), std::as_bytes(std::span(values)));
  }
  template <typename T = float>
  static std::vector<T> download(Executor& executor, Array& array) {
    std::vector<T> values(static_cast<size_t>(array.type().size()));
    executor.download(array, std::as_writable_bytes(std::span(values)));
    return values;
  }
};

class RealPlugin : public RealPluginProcess {
 protected:
  ScopedFolder folder_;
  ScopedEnvironment cache_{"XDG_CACHE_HOME", folder_.path().string()};
};

TEST_F(RealPlugin, SaysWhatItIs) {
  auto executor = make();
  RecordProperty("description", executor.description());
  EXPECT_TRUE(executor.description().starts_with("xla, ")) << executor.description();
  const auto memory = executor.memory();
  EXPECT_GE(memory.value_or(MemoryUse{}).used, 0);
}

TEST_F(RealPlugin, CopiesThereAndBack) {
  auto executor = make();
  for (const int64_t size : {1, 7, 16384, 16385, 3000000}) {  // both kinds of upload
    std::vector<float> values(static_cast<size_t>(size));
    std::iota(values.begin(), values.end(), 0.5f);
    ArrayPtr array = upload(executor, f32({size}), values);
    const std::vector<float> before = values;
    std::fill(values.begin(), values.end(), -1.0f);  // the caller's again
    EXPECT_EQ(download(executor, *array), before) << size;
  }
  for (const Element element : {Element::kPred, Element::kI8, Element::kI32, Element::kU32,
                                Element::kU64, Element::kF16, Element::kBF16, Element::kF32}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {2, 3}, {0}}) {
      const Type type{element, shape};
      std::vector<std::byte> bytes(type.bytes(), std::byte{1}), back(type.bytes());
      executor.download(*executor.upload(type, bytes), back);
      EXPECT_EQ(back, bytes) << type_text(type);
    }
  }
}

TEST_F(RealPlugin, RunsAndDonates) {
  auto executor = make();
  const auto program = executor.compile_text(kSumAndProduct, sum_signature());
  ArrayPtr a = upload<float>(executor, f32({2, 3}), {1, 2, 3, 4, 5, 6});
  const ArrayPtr b = upload<float>(executor, f32({2, 3}), {10, 20, 30, 40, 50, 60});
  for (int step = 1; step <= 3; ++step) {  // what comes out goes in
    const auto results = program->run(std::vector<ArrayPtr>{a, b});
    EXPECT_THROW(download(executor, *a), Error) << "donated";
    a = results[0];
    const float factor = static_cast<float>(10 * step + 1);
    const float before = static_cast<float>(10 * step - 9);
    std::vector<float> sum, product;
    for (int i = 1; i <= 6; ++i) {
      const float x = static_cast<float>(i);
      sum.push_back(factor * x);
      product.push_back(before * x * 10 * x);
    }
    EXPECT_EQ(download(executor, *results[1]), product);
    EXPECT_EQ(download(executor, *a), sum);
  }
  EXPECT_EQ(download(executor, *b), (std::vector<float>{10, 20, 30, 40, 50, 60})) << "kept";
}

TEST_F(RealPlugin, RunsALoop) {
  auto executor = make();
  const auto program =
      executor.compile_text(kLoop, {{kScalarI32, f32({4})}, {f32({4}), kScalarI32}, {-1, -1}});
  for (const int n : {0, 1, 10, 100}) {
    const auto results =
        program->run(std::vector<ArrayPtr>{upload<int32_t>(executor, kScalarI32, {n}),
                                           upload<float>(executor, f32({4}), {1, -2, 0, 0.75f})});
    const float factor = std::ldexp(1.0f, n);
    EXPECT_EQ(download(executor, *results[0]),
              (std::vector<float>{factor, -2 * factor, 0, 0.75f * factor}));
    EXPECT_EQ(download<int32_t>(executor, *results[1]), std::vector<int32_t>{n});
  }
}

TEST_F(RealPlugin, GivesRowsOneAfterAnother) {
  auto executor = make();
  const auto program = executor.compile_text(kTranspose, {{f32({3, 5})}, {f32({5, 3})}, {-1}});
  std::vector<float> values(15), expected;
  std::iota(values.begin(), values.end(), 0.0f);
  for (int column = 0; column < 5; ++column) {
    for (int row = 0; row < 3; ++row) expected.push_back(static_cast<float>(5 * row + column));
  }
  const auto results = program->run(std::vector<ArrayPtr>{upload(executor, f32({3, 5}), values)});
  EXPECT_EQ(download(executor, *results[0]), expected);
}

TEST_F(RealPlugin, RefusesWhatIsNoProgram) {
  auto executor = make();
  try {
    executor.compile_text("this is no program", {});
    FAIL() << "compiled";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kIo);
    const std::string message = e.what();
    EXPECT_TRUE(message.starts_with("cannot compile the program: ")) << message;
    EXPECT_GT(message.size(), 40u) << message;
    EXPECT_EQ(message.find('\n'), message.npos) << message;
  }
}

TEST_F(RealPlugin, SaysThatThereIsNoMemoryLeft) {
  auto executor = make();
  // 2^50 floats from one.
  constexpr std::string_view kHuge = R"(
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%0: tensor<f32>):
    %1 = "stablehlo.broadcast_in_dim"(%0) {broadcast_dimensions = array<i64>}
      : (tensor<f32>) -> tensor<1048576x1073741824xf32>
    "func.return"(%1) : (tensor<1048576x1073741824xf32>) -> ()
  }) {function_type = (tensor<f32>) -> tensor<1048576x1073741824xf32>, sym_name = "main"} : () -> ()
}) {sym_name = "adder"} : () -> ()
)";
  const Type huge = f32({1048576, 1073741824});
  try {
    const auto program = executor.compile_text(kHuge, {{f32({})}, {huge}, {-1}});
    const auto results = program->run(std::vector<ArrayPtr>{upload<float>(executor, f32({}), {1})});
    FAIL() << "ran";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kIo);
    EXPECT_NE(std::string(e.what()).find("no memory left"), std::string::npos) << e.what();
  }
}

// Runs DISABLED_CompilesOneProgram below in a process of its own, as a server that starts again.
bool passes_in_another_process(const char* expected_counts) {
  const ScopedEnvironment expect("ADDER_EXPECT_COMPILED", expected_counts);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execl("/proc/self/exe", "test_xla", "--gtest_also_run_disabled_tests",
            "--gtest_filter=RealPluginProcess.DISABLED_CompilesOneProgram", nullptr);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(RealPlugin, CompilesNothingInTheNextProcess) {
  EXPECT_TRUE(passes_in_another_process("1 compiled, 0 from the cache"));
  EXPECT_TRUE(passes_in_another_process("0 compiled, 1 from the cache"));
}

TEST_F(RealPluginProcess, DISABLED_CompilesOneProgram) {
  auto executor = make();
  const auto program = executor.compile_text(kSumAndProduct, sum_signature());
  const ArrayPtr a = upload<float>(executor, f32({2, 3}), {1, 2, 3, 4, 5, 6});
  const ArrayPtr b = upload<float>(executor, f32({2, 3}), {1, 1, 1, 1, 1, 1});
  const auto results = program->run(std::vector<ArrayPtr>{a, b});
  EXPECT_EQ(download(executor, *results[0]), (std::vector<float>{2, 3, 4, 5, 6, 7}));
  EXPECT_THROW(download(executor, *a), Error) << "donated";
  EXPECT_EQ(
      fmt::format("{} compiled, {} from the cache", executor.compiled(), executor.from_cache()),
      std::string(::getenv("ADDER_EXPECT_COMPILED")));
}

}  // namespace
}  // namespace adder::xla
