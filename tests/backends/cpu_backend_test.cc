// The CPU backend as a whole: choice of the instruction set, memory, state, and rows of norms that
// do not depend on their neighbours.
#include "backends/cpu/cpu_backend.h"

#include <gtest/gtest.h>
#include <stdlib.h>  // setenv is POSIX, <cstdlib> need not have it

#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "backends/cpu/context.h"
#include "backends/cpu/ops.h"
#include "core/error.h"
#include "testing/targets.h"

namespace adder {
namespace {

TEST(CpuBackend, DescribesWhatRuns) {
  for (const std::string& isa : cpu_isas()) {
    EXPECT_EQ(make_cpu_backend(1, isa)->description(), "cpu, " + isa + ", 1 thread");
    EXPECT_EQ(make_cpu_backend(3, isa)->description(), "cpu, " + isa + ", 3 threads");
  }
}

TEST(CpuBackend, TheEnvironmentForcesTheInstructionSet) {
  const char* before = std::getenv("ADDER_FORCE_ISA");
  const std::string saved = before ? before : "";
  for (const std::string& isa : cpu_isas()) {
    setenv("ADDER_FORCE_ISA", isa.c_str(), 1);
    EXPECT_EQ(make_cpu_backend(1)->description(), "cpu, " + isa + ", 1 thread");
  }
  setenv("ADDER_FORCE_ISA", "AVX9000", 1);
  EXPECT_THROW(make_cpu_backend(1), Error);
  EXPECT_NO_THROW(make_cpu_backend(1, cpu_isas()[0])) << "an explicit choice goes first";
  if (before) {
    setenv("ADDER_FORCE_ISA", saved.c_str(), 1);
  } else {
    unsetenv("ADDER_FORCE_ISA");
  }
}

TEST(CpuBackend, RowsAreReadWhereTheyLieAndProductsNeedPackedWeights) {
  auto cpu = make_cpu_backend(1);
  std::vector<float> weight(12);
  const Tensor host(weight.data(), DType::kF32, {3, 4});
  Buffer owner;
  const Tensor rows = cpu->import_weight(host, WeightUse::kRows, &owner);
  EXPECT_EQ(rows.data, weight.data());
  EXPECT_EQ(owner.data(), nullptr);

  std::vector<float> x(4), out(3);
  MatmulArgs args;
  args.x = Tensor(x.data(), DType::kF32, {1, 4});
  args.weight = rows;
  args.out = Tensor(out.data(), DType::kF32, {1, 3});
  EXPECT_THROW(cpu->matmul(args), Error);
  args.weight = cpu->import_weight(host, WeightUse::kMatmul, &owner);
  EXPECT_EQ(args.weight.data, owner.data());
  EXPECT_NO_THROW(cpu->matmul(args));
  EXPECT_THROW(args.weight.slice(0, 0, 1), Error);
}

TEST(CpuBackend, ReadAndWriteCopyExactly) {
  auto cpu = make_cpu_backend(1);
  Buffer memory = cpu->allocate(64);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(static_cast<const char*>(memory.data())[i], 0);
  // 16-bit elements from the third on: offsets count elements, not bytes.
  Tensor middle = Tensor(memory.data(), DType::kF16, {32}).slice(0, 3, 5);
  std::array<std::byte, 10> out{}, in{};
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(i + 1);
  cpu->write(middle, in);
  cpu->read(middle, out);
  EXPECT_EQ(in, out);
  EXPECT_EQ(std::memcmp(static_cast<std::byte*>(memory.data()) + 6, in.data(), 10), 0);
  EXPECT_EQ(static_cast<const char*>(memory.data())[5], 0);
  EXPECT_EQ(static_cast<const char*>(memory.data())[16], 0);
  EXPECT_THROW(cpu->write(middle, std::span(in).first(8)), Error);
  EXPECT_THROW(cpu->read(Tensor(memory.data(), DType::kF32, {2, 4}).slice(1, 0, 2), in), Error);
}

TEST(CpuBackend, StateSlotsAreZeroedAndCopiedAlone) {
  auto cpu = make_cpu_backend(1);
  std::vector<float> memory(4 * 10);
  std::iota(memory.begin(), memory.end(), 1.0f);
  const std::vector<float> original = memory;
  Tensor state(memory.data(), DType::kF32, {4, 2, 3});
  state.stride[0] = 10;  // four elements between slots belong to somebody else
  cpu->state_zero(state, 1);
  cpu->state_copy(state, 3, 0);
  cpu->state_copy(state, 2, 2);
  for (size_t i = 0; i < memory.size(); ++i) {
    const size_t slot = i / 10, at = i % 10;
    const float want = at >= 6     ? original[i]
                       : slot == 1 ? 0
                       : slot == 0 ? original[30 + at]
                                   : original[i];
    EXPECT_EQ(memory[i], want) << i;
  }
  EXPECT_THROW(cpu->state_zero(state, 4), Error);
  EXPECT_THROW(cpu->state_copy(state, 0, -1), Error);
}

TEST(CpuBackend, GatherTakesRowsInAnyOrder) {
  auto cpu = make_cpu_backend(2);
  std::vector<float> x(5 * 7), out(4 * 9, -1.0f);
  std::iota(x.begin(), x.end(), 0.0f);
  const std::vector<int32_t> rows = {4, 0, 4, 2};
  Tensor to(out.data(), DType::kF32, {4, 7});
  to.stride[0] = 9;
  cpu->gather_rows(Tensor(x.data(), DType::kF32, {5, 7}), rows, to);
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 9; ++j) {
      const float want = j < 7 ? x[static_cast<size_t>(rows[i]) * 7 + j] : -1.0f;
      EXPECT_EQ(out[i * 9 + j], want);
    }
  }
}

// Scratch grows to the largest request and stays.
TEST(CpuContext, ScratchGrowsOnce) {
  CpuContext context(2, choose_isa(""));
  float* shared = context.shared_scratch(1000);
  context.reserve_scratch(500);
  float* own = context.scratch(1);
  EXPECT_NE(own, context.scratch(0));
  EXPECT_EQ(context.shared_scratch(999), shared);
  context.reserve_scratch(10);
  EXPECT_EQ(context.scratch(1), own);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(shared) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(own) % 64, 0u);
}

class CpuNorm : public ::testing::TestWithParam<std::string> {};

// One row has the same bits alone, among others, and with other threads.
TEST_P(CpuNorm, RowsAreIndependent) {
  CpuContext one(1, choose_isa(GetParam())), three(3, choose_isa(GetParam()));
  for (int64_t dim : {1, 7, 8, 24, 100, 1001}) {
    constexpr int64_t kRows = 300;
    const auto size = static_cast<size_t>(kRows * dim);
    std::vector<float> x(size), z(size), weight(static_cast<size_t>(dim)), all(size), single(size);
    for (size_t i = 0; i < size; ++i) {
      x[i] = static_cast<float>(i * 2654435761u % 1000) / 500.0f - 1.0f;
      z[i] = static_cast<float>(i * 40503u % 999) / 100.0f - 5.0f;
    }
    for (size_t i = 0; i < weight.size(); ++i) weight[i] = 1.0f + static_cast<float>(i % 5);
    for (bool before : {false, true}) {
      GatedRmsNormArgs args;
      args.x = Tensor(x.data(), DType::kF32, {kRows, dim});
      args.z = Tensor(z.data(), DType::kF32, {kRows, dim});
      args.weight = Tensor(weight.data(), DType::kF32, {dim});
      args.groups = dim % 4 == 0 ? 4 : 1;
      args.norm_before_gate = before;
      args.out = Tensor(all.data(), DType::kF32, {kRows, dim});
      cpu_gated_rms_norm(args, three);
      for (int64_t row = 0; row < kRows; ++row) {
        GatedRmsNormArgs alone = args;
        alone.x = args.x.slice(0, row, 1);
        alone.z = args.z.slice(0, row, 1);
        alone.out = Tensor(single.data(), DType::kF32, {kRows, dim}).slice(0, row, 1);
        cpu_gated_rms_norm(alone, one);
      }
      EXPECT_EQ(std::memcmp(all.data(), single.data(), size * sizeof(float)), 0) << dim;
      // In place: out is x.
      std::vector<float> copy = x;
      args.x = args.out = Tensor(copy.data(), DType::kF32, {kRows, dim});
      cpu_gated_rms_norm(args, one);
      EXPECT_EQ(std::memcmp(all.data(), copy.data(), size * sizeof(float)), 0) << dim;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, CpuNorm, ::testing::ValuesIn(cpu_isas()),
                         adder::testing::isa_name);

}  // namespace
}  // namespace adder
