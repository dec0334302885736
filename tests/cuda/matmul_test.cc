// Products of the CUDA backend beyond what tests/backends covers: the planes of packed weights,
// sizes at which the kernels change, and many thread orders.

#include "backends/cuda/matmul/packed_blocks.h"
#include "backends/cuda/shim/emulator.h"
#include "testing/dense.h"
#include "testing/recurrence.h"
#include "testing/targets.h"

namespace adder::testing {
namespace {

using cuda_emulated::PackedBlocks;

std::unique_ptr<Backend> emulated() {
  return cuda_emulated::make_backend(0);
}

// The integer of element e of block b of a packed row, read as the header says.
int packed_element(DType type, const std::byte* elements, int64_t b, int64_t e) {
  const int64_t i = e % 16 / 4;
  if (cuda_emulated::has_nibbles(type)) {
    const auto byte = std::to_integer<int>(elements[b / 4 * 64 + i * 16 + b % 4 * 4 + e % 4]);
    return e < 16 ? byte & 15 : byte >> 4;
  }
  return static_cast<int8_t>(elements[b / 2 * 64 + i * 16 + b % 2 * 8 + e / 16 * 4 + e % 4]);
}

// Tied embeddings lie in memory once where rows of the one are rows of the other.
TEST(CudaWeights, TiedRowsServeProducts) {
  Rng rng(302);
  const auto backend = emulated();
  const int64_t out = 37, in = 128;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const OpTensor host = Weight::random(rng, dtype, out, in, 0.1f).tensor(*backend, kPacked);
    Buffer rows_owner, owner;
    const Tensor rows = backend->import_weight(host.view(), WeightUse::kRows, &rows_owner);
    const Tensor view = backend->matmul_view(rows);
    ASSERT_EQ(view.data, rows.data) << dtype_name(dtype);
    const Tensor weight = backend->import_weight(host.view(), WeightUse::kMatmul, &owner);
    OpTensor x(*backend, {3, in}, kPacked, rng.normals(3 * in));
    OpTensor got(*backend, {3, out}, kPacked, {}), want(*backend, {3, out}, kPacked, {});
    backend->matmul({x.view(), view, {}, got.view()});
    backend->matmul({x.view(), weight, {}, want.view()});
    EXPECT_TRUE(same_bits(got.read(), want.read())) << dtype_name(dtype);
  }
  // Rows that products want padded, and blocks that they want repacked.
  for (const auto& [dtype, width] : {std::pair{DType::kBF16, 40L}, {DType::kQ8_0, 128L}}) {
    const OpTensor host = Weight::random(rng, dtype, out, width, 0.1f).tensor(*backend, kPacked);
    Buffer owner;
    EXPECT_FALSE(
        backend->matmul_view(backend->import_weight(host.view(), WeightUse::kRows, &owner)));
  }
}

TEST(CudaWeights, PlanesHoldWhatUnpackBlockGives) {
  Rng rng(301);
  const auto backend = emulated();
  for (DType dtype : kBlockFormats) {
    const int64_t block = block_shape(dtype).elements;
    for (int64_t in : {block, 3 * block, 5 * block}) {
      const int64_t out = 5;
      const Weight w = Weight::random(rng, dtype, out, in, 0.1f);
      const OpTensor host = w.tensor(*backend, kOdd);
      Buffer owner;
      const Tensor packed = backend->import_weight(host.view(), WeightUse::kMatmul, &owner);
      EXPECT_EQ(packed.layout, TensorLayout::kPacked);
      const PackedBlocks layout(dtype, in, out);
      ASSERT_EQ(owner.size(), layout.bytes);
      const auto* memory = static_cast<const std::byte*>(owner.data());
      const int offset = dtype == DType::kQ4_0 ? 8 : 0;
      for (int64_t n = 0; n < out; ++n) {
        const auto* row = w.blocks.data() + row_bytes(dtype, n * in);
        for (int64_t b = 0; b < in / 32; ++b) {
          const QuantBlock want = unpack_block(dtype, row, b);
          for (int64_t e = 0; e < 32; ++e)
            ASSERT_EQ(packed_element(dtype, memory + n * layout.element_row, b, e) - offset,
                      want.q[static_cast<size_t>(e)])
                << dtype_name(dtype) << " row " << n << " block " << b << " element " << e;
          uint8_t code[2], half[4] = {};
          std::memcpy(code, memory + layout.codes_at + n * layout.code_row + 2 * b, 2);
          if (cuda_emulated::has_halves(dtype))
            std::memcpy(half, memory + layout.halves_at + n * layout.half_row + b / 8 * 4, 4);
          const auto f16 = [](const uint8_t* at) {
            return f16_to_f32(static_cast<uint16_t>(at[0] | at[1] << 8));
          };
          float scale[2] = {f16(code), f16(code)}, base = 0;
          if (dtype == DType::kQ6_K) {
            for (int h = 0; h < 2; ++h)
              scale[h] = f16(half) * static_cast<float>(static_cast<int8_t>(code[h]));
          } else if (cuda_emulated::has_halves(dtype)) {
            scale[0] = scale[1] = f16(half) * code[0];
            base = f16(half + 2) * code[1];
          }
          EXPECT_EQ(scale[0], want.scale[0]);
          EXPECT_EQ(scale[1], want.scale[1]);
          EXPECT_EQ(base, want.base);
        }
      }
    }
  }
}

// A matrix of more bytes than are repacked at a time, and rows beyond one.
TEST(CudaWeights, LargeMatricesArePackedInPieces) {
  Rng rng(302);
  const auto backend = emulated();
  const int64_t in = 32768, out = 301;
  const Weight w = Weight::random(rng, DType::kQ4_0, out, in, 0.1f);
  const OpTensor host = w.tensor(*backend, kPacked);
  Buffer owner;
  backend->import_weight(host.view(), WeightUse::kMatmul, &owner);
  const PackedBlocks layout(DType::kQ4_0, in, out);
  const auto* memory = static_cast<const std::byte*>(owner.data());
  size_t wrong = 0;
  for (int64_t n = 0; n < out; ++n) {
    for (int64_t b = n % 7; b < in / 32; b += 7) {
      const QuantBlock want =
          unpack_block(DType::kQ4_0, w.blocks.data() + row_bytes(DType::kQ4_0, n * in), b);
      const int64_t e = (n + b) % 32;
      wrong += packed_element(DType::kQ4_0, memory + n * layout.element_row, b, e) - 8 !=
               want.q[static_cast<size_t>(e)];
      wrong += std::memcmp(memory + layout.codes_at + n * layout.code_row + 2 * b,
                           w.blocks.data() + row_bytes(DType::kQ4_0, n * in + b * 32), 2) != 0;
    }
  }
  EXPECT_EQ(wrong, 0u);
}

// As a file has it, a row may end where no whole unit of 16 bytes can be read.
TEST(CudaWeights, OnlyImportedOnesAreMultiplied) {
  Rng rng(304);
  const auto backend = emulated();
  const Weight w = Weight::random(rng, DType::kBF16, 3, 37, 1);
  const OpTensor x(*backend, {1, 37}, kPacked, rng.normals(37)), out(*backend, {1, 3}, kPacked, {});
  const OpTensor strided = w.tensor(*backend, kPacked);
  EXPECT_THROW(backend->matmul({x.view(), strided.view(), {}, out.view()}), Error);
}

// Padding between rows: the weights of odd widths are read in whole units.
TEST(CudaWeights, FloatRowsArePaddedWithZeros) {
  Rng rng(303);
  const auto backend = emulated();
  const Weight w = Weight::random(rng, DType::kBF16, 3, 37, 1);
  const OpTensor host = w.tensor(*backend, kOdd);
  Buffer owner;
  const Tensor packed = backend->import_weight(host.view(), WeightUse::kMatmul, &owner);
  EXPECT_EQ(packed.stride[0], 64);
  ASSERT_EQ(owner.size(), 3u * 64 * 2);
  const auto* bits = static_cast<const uint16_t*>(owner.data());
  for (int64_t n = 0; n < 3; ++n)
    for (int64_t k = 0; k < 64; ++k)
      EXPECT_EQ(bits[n * 64 + k], k < 37 ? w.bits[static_cast<size_t>(n * 37 + k)] : 0);
}

class CudaMatmul : public ::testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Backend> backend_ = emulated();
  std::unique_ptr<Backend> ref_ = make_backend("ref");
};
INSTANTIATE_TEST_SUITE_P(All, CudaMatmul,
                         ::testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0,
                                           DType::kQ4_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K),
                         [](const auto& type) { return std::string(dtype_name(type.param)); });

// Around the tiles of 8 and 16, of 64 and 128, and where one kernel takes over from the other.
TEST_P(CudaMatmul, EdgesOfTilesAndKernels) {
  Rng rng(304);
  const int64_t in = GetParam() == DType::kQ8_0 || GetParam() == DType::kQ4_0 ? 160 : 256;
  for (int64_t out : {1, 16, 129}) {
    const Weight w = Weight::random(rng, GetParam(), out, in, 0.1f);
    const auto bias = rng.normals(out), x = rng.normals(65 * in);
    const auto all = run_matmul(*backend_, x, w, bias, 65);
    EXPECT_TRUE(close(all, run_matmul(*ref_, x, w, bias, 65), kDot)) << out;
    for (int64_t rows : {1, 8, 9, 16, 17, 64})
      EXPECT_TRUE(same_bits(run_matmul(*backend_, cut_rows(x, 65, 1, rows), w, bias, rows),
                            cut_rows(all, 65, 1, rows)))
          << out << ", rows " << rows;
  }
}

// Chains of more than one strip begin where k is longer than 8192, and the last may be short.
TEST_P(CudaMatmul, LongSums) {
  Rng rng(305);
  const int64_t in = 8192 + 2 * 256, out = 17;
  const Weight w = Weight::random(rng, GetParam(), out, in, 0.01f);
  const auto x = rng.normals(19 * in);
  const auto all = run_matmul(*backend_, x, w, {}, 19);
  EXPECT_TRUE(close(all, run_matmul(*ref_, x, w, {}, 19), kDot));
  for (int64_t rows : {1, 10})
    EXPECT_TRUE(same_bits(run_matmul(*backend_, cut_rows(x, 19, 3, rows), w, {}, rows),
                          cut_rows(all, 19, 3, rows)))
        << rows;
}

TEST_P(CudaMatmul, TheSameBitsInAnyThreadOrder) {
  Rng rng(306);
  const int64_t in = 1280, out = 40;
  const Weight w = Weight::random(rng, GetParam(), out, in, 0.1f);
  const auto x = rng.normals(20 * in);
  for (int64_t rows : {5, 20}) {
    const auto part = cut_rows(x, 20, 0, rows);
    emulator::set_schedule({.seed = 1});
    const auto want = run_matmul(*backend_, part, w, {}, rows);
    EXPECT_TRUE(close(want, run_matmul(*ref_, part, w, {}, rows), kDot));
    for (uint64_t seed = 2; seed <= 6; ++seed) {
      emulator::set_schedule({.seed = seed});
      EXPECT_TRUE(same_bits(run_matmul(*backend_, part, w, {}, rows), want)) << seed;
    }
  }
}

}  // namespace
}  // namespace adder::testing
