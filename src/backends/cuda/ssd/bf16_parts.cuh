// float32 products on the bfloat16 tensor cores: an operand is the sum of a few bfloat16 parts.
//
// A part has 8 significant bits, rounded to nearest, so what is left after k parts is at most
// 2^-9k of the value: three parts are all 24 bits of a float32. Of the products of parts those
// with i + j < max(parts) are made; what is dropped is below 2^-26 of a product for three parts
// (six products) and 2^-17 for two. Sums are float32 in the accumulators throughout.
//
// An operand that was bfloat16 to begin with is one part, exactly.
#pragma once

#include "backends/cuda/arch.cuh"

namespace adder::ADDER_CUDA_NS {

// How many parts the operands of the scan have, by the type of the activations. kExact: of x, B and
// C themselves. kDerived: of what is computed from them, C B^T with its decays, dt x with its
// decays, and the state. Two parts of these err by 2^-17, next to 2^-9 of a bfloat16 output.
template <typename T>
struct PartCount;
template <>
struct PartCount<float> {
  static constexpr int kExact = 3, kDerived = 3;
};
template <>
struct PartCount<Bf16> {
  static constexpr int kExact = 1, kDerived = 2;
};

// Two neighbours of a fragment, in parts: part k of both in to[k], `low` in the lower half.
template <int kParts>
__device__ __forceinline__ void split_pair(float low, float high, uint32_t (&to)[kParts]) {
  ADDER_UNROLL
  for (int part = 0; part < kParts; ++part) {
    to[part] = pack_bf16(low, high);
    low -= __uint_as_float(to[part] << 16);
    high -= __uint_as_float(to[part] & 0xffff0000u);
  }
}

// d += a * b, the small products first.
template <int kA, int kB>
__device__ __forceinline__ void multiply_parts(float (&d)[4], const uint32_t (&a)[kA][4],
                                               const uint32_t (&b)[kB][2]) {
  constexpr int kMost = kA > kB ? kA : kB;
  ADDER_UNROLL
  for (int rank = kMost - 1; rank >= 0; --rank) {
    ADDER_UNROLL
    for (int i = 0; i < kA; ++i)
      if (rank - i >= 0 && rank - i < kB) mma_16x8x16(d, a[i], b[rank - i]);
  }
}

// A lane's 16 bytes of a 16 x 16 tile in fragment order, as they lie in memory: lane after lane, so
// that a warp reads 512 bytes in a row, without bank conflicts and without ldmatrix. As the left
// operand they are a[0] to a[3] of mma_16x8x16; as the right one b[0], b[1] of the first eight
// columns, then of the others.
struct FragmentTile {
  uint4 lane[kWarpSize];
};
__device__ __forceinline__ void load_fragment(const FragmentTile& tile, int lane,
                                              uint32_t (&to)[4]) {
  const uint4 v = tile.lane[lane];
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

}  // namespace adder::ADDER_CUDA_NS
