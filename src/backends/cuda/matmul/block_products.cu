// Products with the block formats: int8 by int8 on the tensor cores, whose sums over a block of 32
// are exact, so that only the float32 additions over blocks have an order (products.h).
//
// x is rounded first, once for all outputs: int8 in the order of the weights' elements
// (packed_blocks.h, 8 bits), and per block of 32 the scale d and the sum of its integers.
// A block then is one mma (Q6_K: one per half, which has a scale of its own), and four outputs of a
// lane are each
//   sum = fma(d, scale * dot - base * total, sum)
//
// Expected [derived]: Q4_K streams 18.5 bytes per 32 weights of one output. A 16 x 32 block costs a
// warp about 40 instructions against 296 bytes; an H200's SM gets 4.8 TB/s / 132 / 1.755 GHz = 21
// bytes per clock, i.e. 14 clocks per block in which it can issue 56. But to stream at that rate
// over 0.7 us takes 25 KB under way, and 4-bit weights have 18 KB: about 70 % of the bandwidth.
#include <cfloat>

#include "backends/cuda/launch.cuh"
#include "backends/cuda/matmul/packed_blocks.h"
#include "backends/cuda/matmul/tile.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

struct BlockProductParams {
  const float* x;
  const char* elements;  // PackedBlocks
  const char* codes;
  const char* halves;
  const float* bias;
  float* out;
  char* q;          // (tokens, strips, 128) int8 of x
  float* d;         // (tokens, strips, 4)
  int32_t* totals;  // (tokens, strips, 4)
  Chains chains;
  int32_t in_features;
  int32_t outputs;
  int32_t units;
  int64_t tokens, x_row, out_row;
  int64_t element_row, code_row, half_row;
};

// ---- Activations ----

constexpr int kQuantizeWarps = 4;

// A warp rounds a strip of a token: 8 lanes to a block, 4 elements to a lane. The arithmetic is
// that of quantize_activations (core/quant.h), to the bit.
__global__ void quantize_kernel(BlockProductParams p) {
  const int lane = lane_id();
  const int64_t at = int64_t{blockIdx.x} * kQuantizeWarps + threadIdx.x / kWarpSize;
  const int64_t token = at / p.chains.strips;
  const auto strip = static_cast<int>(at % p.chains.strips);
  if (token >= p.tokens) return;  // whole warps
  const int block = lane / 8, j = lane % 8;
  const int k = strip * kStrip + block * kGroup + 4 * j;
  const bool inside = k < p.in_features;
  float v[4];
  float largest = 0;
  ADDER_UNROLL
  for (int e = 0; e < 4; ++e) {
    v[e] = inside ? p.x[token * p.x_row + k + e] : 0.0f;
    const float magnitude = fabsf(v[e]);
    largest = fmaxf(largest, magnitude <= FLT_MAX ? magnitude : INFINITY);
  }
  for (int lanes = 4; lanes > 0; lanes /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(kFullMask, largest, lanes));
  const bool finite = largest <= FLT_MAX;
  const float scale = largest / 127.0f;
  const bool usable = finite && scale >= FLT_MIN;
  uint32_t packed = 0;
  int total = 0;
  ADDER_UNROLL
  for (int e = 0; e < 4; ++e) {
    const int q = usable ? static_cast<int>(rintf(v[e] / scale)) : 0;
    packed |= (static_cast<uint32_t>(q) & 0xffu) << (8 * e);
    total += q;
  }
  for (int lanes = 4; lanes > 0; lanes /= 2) total += __shfl_xor_sync(kFullMask, total, lanes);
  const int64_t row_strip = token * p.chains.strips + strip;
  const int byte = block / 2 * 64 + j % 4 * 16 + block % 2 * 8 + j / 4 * 4;
  *reinterpret_cast<uint32_t*>(p.q + row_strip * kStrip + byte) = packed;
  if (j == 0) {
    p.d[row_strip * kStripGroups + block] = !finite ? NAN : usable ? scale : 0.0f;
    p.totals[row_strip * kStripGroups + block] = total;
  }
}

// ---- A strip of a 16 x 8 tile ----

template <DType kType>
struct StripOfWeights {
  static constexpr int kUnits = has_nibbles(kType) ? 1 : 2;
  uint4 elements[2][kUnits];  // of rows g and g + 8
  uint2 codes[2];             // of four blocks
  uint32_t halves[2];
};

struct StripOfX {
  uint4 q[2];   // of token g: blocks 0 and 1, blocks 2 and 3
  float4 d[2];  // of tokens 2 i and 2 i + 1, for each block
  int4 totals[2];
};

__device__ __forceinline__ uint32_t word(const uint4& v, int at) {
  return at == 0 ? v.x : at == 1 ? v.y : at == 2 ? v.z : v.w;
}
__device__ __forceinline__ float word(const float4& v, int at) {
  return at == 0 ? v.x : at == 1 ? v.y : at == 2 ? v.z : v.w;
}
__device__ __forceinline__ int word(const int4& v, int at) {
  return at == 0 ? v.x : at == 1 ? v.y : at == 2 ? v.z : v.w;
}

// The scales of one block of one row.
struct Scales {
  float scale[2];
  float base;
};
template <DType kType>
__device__ __forceinline__ Scales scales_of(const uint2& codes, uint32_t halves, int block) {
  const uint32_t code = (block < 2 ? codes.x : codes.y) >> (block % 2 * 16) & 0xffffu;
  if (!has_halves(kType)) return {{half_to_float(code), 0}, 0};
  const float d = half_to_float(halves & 0xffffu);
  if (kType == DType::kQ6_K)
    return {{d * static_cast<float>(static_cast<int8_t>(code & 0xffu)),
             d * static_cast<float>(static_cast<int8_t>(code >> 8))},
            0};
  return {{d * static_cast<float>(code & 0xffu), 0},
          half_to_float(halves >> 16) * static_cast<float>(code >> 8)};
}

template <DType kType>
__device__ __forceinline__ void multiply_strip(float (&sum)[4], const StripOfWeights<kType>& w,
                                               const StripOfX& x) {
  ADDER_UNROLL
  for (int block = 0; block < kStripGroups; ++block) {
    uint32_t a[4];
    ADDER_UNROLL
    for (int low = 0; low < 2; ++low) {
      if constexpr (has_nibbles(kType)) {
        const uint32_t pairs = word(w.elements[low][0], block);
        a[low] = pairs & 0x0f0f0f0fu;
        a[2 + low] = pairs >> 4 & 0x0f0f0f0fu;
      } else {
        const uint4& v = w.elements[low][block / 2];
        a[low] = word(v, block % 2 * 2);
        a[2 + low] = word(v, block % 2 * 2 + 1);
      }
    }
    const uint32_t b[2] = {word(x.q[block / 2], block % 2 * 2),
                           word(x.q[block / 2], block % 2 * 2 + 1)};
    int32_t dot[4] = {}, second[4] = {};
    if constexpr (kType == DType::kQ6_K) {
      const uint32_t b_first[2] = {b[0], 0}, b_second[2] = {0, b[1]};
      mma_16x8x32(dot, a, b_first);
      mma_16x8x32(second, a, b_second);
    } else {
      if constexpr (kType == DType::kQ4_0) {
        ADDER_UNROLL
        for (int at = 0; at < 4; ++at) dot[at] = -8 * word(x.totals[at % 2], block);
      }
      mma_16x8x32(dot, a, b);
    }
    const Scales rows[2] = {scales_of<kType>(w.codes[0], w.halves[0], block),
                            scales_of<kType>(w.codes[1], w.halves[1], block)};
    ADDER_UNROLL
    for (int at = 0; at < 4; ++at) {
      const Scales& s = rows[at / 2];
      float product = s.scale[0] * static_cast<float>(dot[at]);
      if constexpr (kType == DType::kQ6_K)
        product = fmaf(s.scale[1], static_cast<float>(second[at]), product);
      if constexpr (has_base(kType))
        product = fmaf(-s.base, static_cast<float>(word(x.totals[at % 2], block)), product);
      sum[at] = fmaf(word(x.d[at % 2], block), product, sum[at]);
    }
  }
}

__device__ __forceinline__ void finish(const BlockProductParams& p, int64_t output, int64_t token,
                                       float sum) {
  p.out[token * p.out_row + output] = sum + (p.bias == nullptr ? 0.0f : p.bias[output]);
}

// ---- Up to 16 tokens ----

// Thread blocks that a multiprocessor shall hold. Two of 8 bits have 34 KB under way, of 4 bits 18
// KB; a third of those would spill.
template <int TokenTiles, int Warps>
[[maybe_unused]] constexpr int min_blocks = Warps == kSkinnyWarps&& TokenTiles == 1 ? 2 : 1;

template <DType kType, int TokenTiles, int Warps>
__global__ void __launch_bounds__(Warps* kWarpSize, (min_blocks<TokenTiles, Warps>))
    skinny_kernel(BlockProductParams p) {
  using Weights = StripOfWeights<kType>;
  auto* sums = &shared_memory<float4>();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = lane_id();
  const int g = lane / 4, i = lane % 4;
  const int64_t first_output = int64_t{blockIdx.x} * kTileOutputs;

  for (int chain = warp; chain < p.chains.count; chain += Warps) {
    float sum[TokenTiles][4] = {};
    const int end = min((chain + 1) * p.chains.chain_strips, p.chains.strips);
    for (int strip = chain * p.chains.chain_strips; strip < end; ++strip) {
      // What lies beyond the last output, token or unit is read from the last one, so that loads
      // need no branches, and not used: x is 0 behind its end.
      Weights w = {};
      ADDER_UNROLL
      for (int low = 0; low < 2; ++low) {
        const int64_t output = min(first_output + g + 8 * low, int64_t{p.outputs} - 1);
        ADDER_UNROLL
        for (int u = 0; u < Weights::kUnits; ++u) {
          const int64_t unit = min(strip * Weights::kUnits + u, p.units - 1);
          w.elements[low][u] = load_stream(reinterpret_cast<const uint4*>(
              p.elements + output * p.element_row + unit * 64 + 16 * i));
        }
        w.codes[low] =
            *reinterpret_cast<const uint2*>(p.codes + output * p.code_row + int64_t{strip} * 8);
        if constexpr (has_halves(kType))
          w.halves[low] = *reinterpret_cast<const uint32_t*>(p.halves + output * p.half_row +
                                                             int64_t{strip} / 2 * 4);
      }
      ADDER_UNROLL
      for (int tile = 0; tile < TokenTiles; ++tile) {
        StripOfX x;
        const int first = tile * kTileTokens, last = static_cast<int>(p.tokens) - 1;
        const auto* q = reinterpret_cast<const uint4*>(
            p.q + int64_t{min(first + g, last) * p.chains.strips + strip} * kStrip);
        x.q[0] = q[i];
        x.q[1] = q[4 + i];
        ADDER_UNROLL
        for (int at = 0; at < 2; ++at) {
          const int row_strip = min(first + 2 * i + at, last) * p.chains.strips + strip;
          x.d[at] = reinterpret_cast<const float4*>(p.d)[row_strip];
          x.totals[at] = reinterpret_cast<const int4*>(p.totals)[row_strip];
        }
        multiply_strip<kType>(sum[tile], w, x);
      }
    }
    ADDER_UNROLL
    for (int tile = 0; tile < TokenTiles; ++tile)
      chain_tile<TokenTiles>(sums, chain, tile, lane) =
          make_float4(sum[tile][0], sum[tile][1], sum[tile][2], sum[tile][3]);
  }
  __syncthreads();
  add_chains<TokenTiles>(sums, p.chains.count, [&](int output, int token, float sum) {
    if (first_output + output < p.outputs && token < p.tokens)
      finish(p, first_output + output, token, sum);
  });
}

// ---- More tokens: a stage is a strip ----

constexpr int kStages = 4;  // of at most 28 KB

template <DType kType>
struct WideStage {
  static constexpr int kChunks = StripOfWeights<kType>::kUnits * 4;
  uint4 elements[kWideOutputs][kChunks];
  uint4 q[kWideTokens][8];
  float4 d[kWideTokens];
  int4 totals[kWideTokens];
  uint2 codes[kWideOutputs];
  uint32_t halves[kWideOutputs];
  // Rows of 64 bytes need no swapping: two of them fill the banks.
  static __device__ __forceinline__ int place(int row, int chunk) {
    return kChunks == 8 ? swizzled(row, chunk) : chunk;
  }
};

template <DType kType>
__device__ __forceinline__ void load_stage(const BlockProductParams& p, WideStage<kType>& to,
                                           int strip, int64_t first_output, int64_t first_token) {
  using Stage = WideStage<kType>;
  const auto thread = static_cast<int>(threadIdx.x);
  for (int c = thread; c < kWideOutputs * Stage::kChunks; c += kWideThreads) {
    const int row = c / Stage::kChunks, chunk = c % Stage::kChunks;
    const int64_t output = first_output + row;
    const int unit = strip * (Stage::kChunks / 4) + chunk / 4;
    const bool inside = output < p.outputs && unit < p.units;
    const char* from = p.elements;
    if (inside) from += output * p.element_row + int64_t{unit} * 64 + chunk % 4 * 16;
    cp_async<16>(&to.elements[row][Stage::place(row, chunk)], from, inside ? 16 : 0);
  }
  for (int c = thread; c < kWideTokens * 8; c += kWideThreads) {
    const int row = c / 8, chunk = c % 8;
    const int64_t token = first_token + row;
    const bool inside = token < p.tokens;
    const char* from = p.q;
    if (inside) from += (token * p.chains.strips + strip) * kStrip + chunk * 16;
    cp_async<16>(&to.q[row][swizzled(row, chunk)], from, inside ? 16 : 0);
  }
  if (thread < kWideOutputs) {
    const int64_t output = first_output + thread;
    const bool inside = output < p.outputs;
    const int64_t row = inside ? output : 0;
    cp_async<8>(&to.codes[thread], p.codes + row * p.code_row + int64_t{strip} * 8, inside ? 8 : 0);
    if constexpr (has_halves(kType))
      cp_async<4>(&to.halves[thread], p.halves + row * p.half_row + int64_t{strip} / 2 * 4,
                  inside ? 4 : 0);
  } else {
    const int of = thread - kWideOutputs, row = of % kWideTokens;
    const int64_t token = first_token + row;
    const bool inside = token < p.tokens;
    const int64_t row_strip = (inside ? token : 0) * p.chains.strips + strip;
    if (of < kWideTokens)
      cp_async<16>(&to.d[row], p.d + row_strip * kStripGroups, inside ? 16 : 0);
    else
      cp_async<16>(&to.totals[row], p.totals + row_strip * kStripGroups, inside ? 16 : 0);
  }
}
static_assert(kWideThreads == kWideOutputs + 2 * kWideTokens);

template <DType kType>
__global__ void __launch_bounds__(kWideThreads) wide_kernel(BlockProductParams p) {
  struct Shared {
    WideStage<kType> stage[kStages];
  };
  using Stage = WideStage<kType>;
  auto& shared = shared_memory<Shared>();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = lane_id();
  const int g = lane / 4, i = lane % 4;
  const int64_t first_token = int64_t{blockIdx.x} * kWideTokens,
                first_output = int64_t{blockIdx.y} * kWideOutputs;
  const int warp_output = warp / 2 * kWarpOutputTiles * kTileOutputs,
            warp_token = warp % 2 * kWarpTokenTiles * kTileTokens;

  float total[kWarpOutputTiles][kWarpTokenTiles][4] = {};
  float sum[kWarpOutputTiles][kWarpTokenTiles][4] = {};
  const auto fetch = [&](int s) {
    if (s < p.chains.strips)
      load_stage<kType>(p, shared.stage[s % kStages], s, first_output, first_token);
    cp_async_commit();  // even nothing: the waits count
  };
  for (int s = 0; s + 1 < kStages; ++s) fetch(s);
  for (int s = 0; s < p.chains.strips; ++s) {
    cp_async_wait<kStages - 2>();
    __syncthreads();  // stage s is there, and nobody reads stage s - 1 any more
    fetch(s + kStages - 1);
    const Stage& stage = shared.stage[s % kStages];
    StripOfWeights<kType> w[kWarpOutputTiles];
    ADDER_UNROLL
    for (int tile = 0; tile < kWarpOutputTiles; ++tile) {
      ADDER_UNROLL
      for (int low = 0; low < 2; ++low) {
        const int row = warp_output + tile * kTileOutputs + low * 8 + g;
        ADDER_UNROLL
        for (int u = 0; u < Stage::kChunks / 4; ++u)
          w[tile].elements[low][u] = stage.elements[row][Stage::place(row, 4 * u + i)];
        w[tile].codes[low] = stage.codes[row];
        w[tile].halves[low] = has_halves(kType) ? stage.halves[row] : 0;
      }
    }
    ADDER_UNROLL
    for (int token_tile = 0; token_tile < kWarpTokenTiles; ++token_tile) {
      const int row = warp_token + token_tile * kTileTokens;
      if (first_token + row >= p.tokens) continue;
      StripOfX x;
      ADDER_UNROLL
      for (int at = 0; at < 2; ++at) {
        x.q[at] = stage.q[row + g][swizzled(row + g, 4 * at + i)];
        x.d[at] = stage.d[row + 2 * i + at];
        x.totals[at] = stage.totals[row + 2 * i + at];
      }
      ADDER_UNROLL
      for (int tile = 0; tile < kWarpOutputTiles; ++tile)
        multiply_strip<kType>(sum[tile][token_tile], w[tile], x);
    }
    if ((s + 1) % p.chains.chain_strips == 0 || s + 1 == p.chains.strips) {
      for_each_output([&](int tile, int token_tile, int at) {
        total[tile][token_tile][at] += sum[tile][token_tile][at];
        sum[tile][token_tile][at] = 0;
      });
    }
  }
  for_each_output([&](int tile, int token_tile, int at) {
    const int64_t output = first_output + warp_output + tile * kTileOutputs + tile_output(lane, at);
    const int64_t token =
        first_token + warp_token + token_tile * kTileTokens + tile_token(lane, at);
    if (output < p.outputs && token < p.tokens)
      finish(p, output, token, total[tile][token_tile][at]);
  });
}

// ---- Launchers ----

template <DType kType, int TokenTiles, int Warps>
void launch_skinny(CudaContext& context, const BlockProductParams& p) {
  launch(context.device, skinny_kernel<kType, TokenTiles, Warps>,
         {blocks(ceil_div(p.outputs, kTileOutputs)), dim3(Warps * kWarpSize),
          skinny_shared_bytes<TokenTiles>(p.chains)},
         p);
}

template <DType kType>
void run_skinny(CudaContext& context, const BlockProductParams& p) {
  if (p.tokens > kTileTokens) return launch_skinny<kType, 2, kSkinnyWarps>(context, p);
  const int64_t blocks = ceil_div(p.outputs, kTileOutputs);
  if (blocks <= context.device.info().multiprocessors && p.chains.count > kSkinnyWarps)
    return launch_skinny<kType, 1, kManyWarps>(context, p);
  launch_skinny<kType, 1, kSkinnyWarps>(context, p);
}

template <DType kType>
void run(CudaContext& context, BlockProductParams p) {
  const int64_t all_tokens = p.tokens, tokens = std::min(all_tokens, kPieceTokens);
  const auto strips = static_cast<size_t>(tokens * p.chains.strips);
  p.q = static_cast<char*>(
      context.scratch(strips * (kStrip + kStripGroups * (sizeof(float) + sizeof(int32_t)))));
  p.d = reinterpret_cast<float*>(p.q + strips * kStrip);
  p.totals = reinterpret_cast<int32_t*>(p.d + strips * kStripGroups);
  for (int64_t begin = 0; begin < all_tokens; begin += kPieceTokens) {
    BlockProductParams piece = p;
    piece.tokens = std::min(kPieceTokens, all_tokens - begin);
    piece.x += begin * p.x_row;
    piece.out += begin * p.out_row;
    launch(context.device, quantize_kernel,
           {blocks(ceil_div(piece.tokens * p.chains.strips, kQuantizeWarps)),
            dim3(kQuantizeWarps * kWarpSize)},
           piece);
    if (all_tokens <= kSkinnyTokens) {
      run_skinny<kType>(context, piece);
    } else {
      launch(context.device, wide_kernel<kType>,
             {blocks(ceil_div(piece.tokens, kWideTokens), ceil_div(p.outputs, kWideOutputs)),
              dim3(kWideThreads), kStages * sizeof(WideStage<kType>)},
             piece);
    }
  }
}

}  // namespace

void block_matmul(CudaContext& context, const MatmulArgs& a) {
  const PackedBlocks layout(a.weight.dtype, a.x.dim(1), a.out.dim(1));
  BlockProductParams p{};
  p.x = a.x.ptr<const float>();
  p.elements = static_cast<const char*>(a.weight.data);
  p.codes = p.elements + layout.codes_at;
  p.halves = p.elements + layout.halves_at;
  p.bias = a.bias ? a.bias.ptr<const float>() : nullptr;
  p.out = a.out.ptr<float>();
  p.chains = chains_of(a.x.dim(1));
  p.in_features = static_cast<int32_t>(a.x.dim(1));
  p.outputs = static_cast<int32_t>(a.out.dim(1));
  p.units = static_cast<int32_t>(layout.units);
  p.tokens = a.out.dim(0);
  p.x_row = a.x.stride[0];
  p.out_row = a.out.stride[0];
  p.element_row = layout.element_row;
  p.code_row = layout.code_row;
  p.half_row = layout.half_row;
  switch (a.weight.dtype) {
    case DType::kQ8_0:
      return run<DType::kQ8_0>(context, p);
    case DType::kQ4_0:
      return run<DType::kQ4_0>(context, p);
    case DType::kQ4_K:
      return run<DType::kQ4_K>(context, p);
    case DType::kQ5_K:
      return run<DType::kQ5_K>(context, p);
    default:
      return run<DType::kQ6_K>(context, p);
  }
}

}  // namespace adder::ADDER_CUDA_NS
