// Products with F32, F16 and BF16 weights, exact to float32, on the tensor cores.
//
// A float32 is the sum of three bfloat16 (hi, mid, lo: 8 significant bits each, rounded), a float16
// of two, a bfloat16 is one. x has three parts and the weight W of them; the products of parts i
// and j with i + j <= 2 are added, smallest first: 3 mma for BF16, 5 for F16, 6 for F32. What is
// left out is below 2^-26 of the product, a quarter of what float32 rounds away.
// Where that is no number (an Inf makes parts of NaN, and a value next to the largest rounds to
// Inf) the output is computed again by plain float32 sums.
//
// The permutation along k is the one in which weights need no shuffle: with i = lane % 4, a lane
// reads 16 neighbouring bytes of its row. 16-bit weights: elements 8 i .. 8 i + 7 of a group, the
// first mma takes four of them and the second the others. F32: elements 4 i .. for the first and
// 16 + 4 i .. for the second.
//
// Expected [derived]: one token moves 2 bytes per BF16 weight, and a warp's strip of 16 x 128
// weights has 4 KB of loads in flight against 24 mma: bound by memory. The wide kernel does 3 mma
// where plain bfloat16 does one, so a third of the bfloat16 rate is its ceiling.
#include <cfloat>

#include "backends/cuda/launch.cuh"
#include "backends/cuda/matmul/tile.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kParts = 3;  // of x

struct FloatProductParams {
  const float* x;
  const void* weight;  // rows of whole groups, 16-byte aligned
  const float* bias;
  float* out;
  uint16_t* parts;  // (kParts, tokens, groups * 32) of x, for the wide kernel
  Chains chains;
  int32_t in_features;
  int32_t outputs;
  int64_t tokens;
  int64_t x_row, out_row, weight_row_bytes;
  bool x_aligned;  // rows of x may be read in units of 16 bytes
};

template <DType kType>
struct FloatFormat {
  static constexpr bool kFull = kType == DType::kF32;
  static constexpr int kParts = kType == DType::kBF16 ? 1 : kType == DType::kF16 ? 2 : 3;
  static constexpr int kLoads = kFull ? 2 : 1;  // of 16 bytes, for 8 elements of a row
  // The first of the four elements that a lane has in mma `step` of a group.
  static __device__ __forceinline__ int element(int i, int step) {
    return kFull ? 16 * step + 4 * i : 8 * i + 4 * step;
  }
  static __device__ __forceinline__ float at(const void* row, int64_t k) {
    if (kFull) return static_cast<const float*>(row)[k];
    const uint16_t bits = static_cast<const uint16_t*>(row)[k];
    return kType == DType::kF16 ? half_to_float(bits) : bf16_to_f32(bits);
  }
};

// Takes the leading bfloat16 of both values away.
__device__ __forceinline__ uint32_t take_part(float& a, float& b) {
  const uint32_t pair = pack_bf16(a, b);
  a -= __uint_as_float(pair << 16);
  b -= __uint_as_float(pair & 0xffff0000u);
  return pair;
}

// Eight elements along k in the order of the two mma.
struct Eight {
  uint32_t step[2][2];
};

template <DType kType>
__device__ __forceinline__ void weight_parts(const uint4* raw,
                                             Eight (&parts)[FloatFormat<kType>::kParts]) {
  if constexpr (kType == DType::kBF16) {
    parts[0] = {{{raw[0].x, raw[0].y}, {raw[0].z, raw[0].w}}};
  } else {
    float values[8];
    if constexpr (kType == DType::kF16) {
      const uint32_t pairs[4] = {raw[0].x, raw[0].y, raw[0].z, raw[0].w};
      ADDER_UNROLL
      for (int j = 0; j < 4; ++j) {
        values[2 * j] = half_to_float(pairs[j] & 0xffffu);
        values[2 * j + 1] = half_to_float(pairs[j] >> 16);
      }
    } else {
      ADDER_UNROLL
      for (int j = 0; j < 2; ++j) {
        values[4 * j] = __uint_as_float(raw[j].x);
        values[4 * j + 1] = __uint_as_float(raw[j].y);
        values[4 * j + 2] = __uint_as_float(raw[j].z);
        values[4 * j + 3] = __uint_as_float(raw[j].w);
      }
    }
    ADDER_UNROLL
    for (int p = 0; p < FloatFormat<kType>::kParts; ++p) {
      ADDER_UNROLL
      for (int j = 0; j < 4; ++j)
        parts[p].step[j / 2][j % 2] = take_part(values[2 * j], values[2 * j + 1]);
    }
  }
}

// One group of 32 of a 16 x 8 tile: `top` and `low` are rows g and g + 8 of the weights.
template <int kWeightParts>
__device__ __forceinline__ void multiply_group(float (&sum)[4], const Eight (&top)[kWeightParts],
                                               const Eight (&low)[kWeightParts],
                                               const Eight (&x)[kParts]) {
  ADDER_UNROLL
  for (int step = 0; step < 2; ++step) {
    ADDER_UNROLL
    for (int order = kParts - 1; order >= 0; --order) {
      ADDER_UNROLL
      for (int p = 0; p < kWeightParts; ++p) {
        const int q = order - p;
        if (q < 0) continue;
        const uint32_t a[4] = {top[p].step[step][0], low[p].step[step][0], top[p].step[step][1],
                               low[p].step[step][1]};
        mma_16x8x16(sum, a, x[q].step[step]);
      }
    }
  }
}

// Four neighbours of a row of x from element k on; those behind its end are 0.
__device__ __forceinline__ float4 load_four(const float* row, int k, int end, bool aligned) {
  if (aligned && k + 4 <= end) return *reinterpret_cast<const float4*>(row + k);
  float4 v = make_float4(0, 0, 0, 0);
  if (k < end) v.x = row[k];
  if (k + 1 < end) v.y = row[k + 1];
  if (k + 2 < end) v.z = row[k + 2];
  if (k + 3 < end) v.w = row[k + 3];
  return v;
}

// The parts of eight elements of x: four for each mma.
__device__ __forceinline__ void x_parts(const float4 (&x)[2], Eight (&parts)[kParts]) {
  ADDER_UNROLL
  for (int step = 0; step < 2; ++step) {
    float4 v = x[step];
    ADDER_UNROLL
    for (int part = 0; part < kParts; ++part) {
      parts[part].step[step][0] = take_part(v.x, v.y);
      parts[part].step[step][1] = take_part(v.z, v.w);
    }
  }
}

// What lane i uses of a strip of each token, all loads before the first use.
template <DType kType, bool kWhole, int TokenTiles>
__device__ __forceinline__ void load_x(float4 (&x)[kStripGroups][TokenTiles][2],
                                       const FloatProductParams& p,
                                       const float* const (&tokens)[TokenTiles], int strip, int i) {
  ADDER_UNROLL
  for (int at = 0; at < kStripGroups; ++at) {
    const int group = min(strip * kStripGroups + at, p.chains.groups - 1);
    ADDER_UNROLL
    for (int tile = 0; tile < TokenTiles; ++tile) {
      ADDER_UNROLL
      for (int step = 0; step < 2; ++step) {
        const int k = group * kGroup + FloatFormat<kType>::element(i, step);
        x[at][tile][step] = kWhole ? *reinterpret_cast<const float4*>(tokens[tile] + k)
                                   : load_four(tokens[tile], k, p.in_features, p.x_aligned);
      }
    }
  }
}

template <DType kType>
__device__ __forceinline__ void finish(const FloatProductParams& p, int64_t output, int64_t token,
                                       float sum) {
  if (!(fabsf(sum) <= FLT_MAX)) {
    const void* row = static_cast<const char*>(p.weight) + output * p.weight_row_bytes;
    const float* x = p.x + token * p.x_row;
    sum = 0;
    for (int32_t k = 0; k < p.in_features; ++k)
      sum = fmaf(x[k], FloatFormat<kType>::at(row, k), sum);
  }
  p.out[token * p.out_row + output] = sum + (p.bias == nullptr ? 0.0f : p.bias[output]);
}

// Thread blocks that a multiprocessor shall hold: 64 KB of weights are under way, of BF16 in two.
template <DType kType, int TokenTiles, int Warps>
[[maybe_unused]] constexpr int min_blocks =
    Warps == kSkinnyWarps&& TokenTiles == 1 && kType != DType::kF32 ? 2 : 1;

template <DType kType, int TokenTiles, int Warps>
__global__ void __launch_bounds__(Warps* kWarpSize, (min_blocks<kType, TokenTiles, Warps>))
    skinny_kernel(FloatProductParams p) {
  using Format = FloatFormat<kType>;
  auto* sums = &shared_memory<float4>();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = lane_id();
  const int g = lane / 4, i = lane % 4;
  const int64_t first_output = int64_t{blockIdx.x} * kTileOutputs;
  // What lies beyond the last output, token or group is read from the last one, so that loads need
  // no branches, and not used.
  const char* rows[2];
  ADDER_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int64_t output = min(first_output + g + 8 * half, int64_t{p.outputs} - 1);
    rows[half] = static_cast<const char*>(p.weight) + output * p.weight_row_bytes + 16 * i;
  }
  const float* tokens[TokenTiles];
  ADDER_UNROLL
  for (int tile = 0; tile < TokenTiles; ++tile)
    tokens[tile] = p.x + min(int64_t{tile} * kTileTokens + g, p.tokens - 1) * p.x_row;
  const bool whole_groups = p.x_aligned && p.in_features % kGroup == 0;

  for (int chain = warp; chain < p.chains.count; chain += Warps) {
    float sum[TokenTiles][4] = {};
    const int end = min((chain + 1) * p.chains.chain_strips, p.chains.strips);
    for (int strip = chain * p.chains.chain_strips; strip < end; ++strip) {
      uint4 raw[kStripGroups][2][Format::kLoads];
      float4 x[kStripGroups][TokenTiles][2];
      ADDER_UNROLL
      for (int at = 0; at < kStripGroups; ++at) {
        const int64_t group = min(strip * kStripGroups + at, p.chains.groups - 1);
        ADDER_UNROLL
        for (int half = 0; half < 2; ++half) {
          ADDER_UNROLL
          for (int part = 0; part < Format::kLoads; ++part)
            raw[at][half][part] = load_stream(
                reinterpret_cast<const uint4*>(rows[half] + (group * Format::kLoads + part) * 64));
        }
      }
      if (whole_groups)
        load_x<kType, true>(x, p, tokens, strip, i);
      else
        load_x<kType, false>(x, p, tokens, strip, i);
      ADDER_UNROLL
      for (int at = 0; at < kStripGroups; ++at) {
        if (strip * kStripGroups + at >= p.chains.groups) continue;
        Eight top[Format::kParts], low[Format::kParts];
        weight_parts<kType>(raw[at][0], top);
        weight_parts<kType>(raw[at][1], low);
        ADDER_UNROLL
        for (int tile = 0; tile < TokenTiles; ++tile) {
          Eight parts[kParts];
          x_parts(x[at][tile], parts);
          multiply_group(sum[tile], top, low, parts);
        }
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
      finish<kType>(p, first_output + output, token, sum);
  });
}

// x in parts, once for all the outputs that use it: one thread per lane of a group, 16 bytes in
// each part.
constexpr int kSplitThreads = 128;
template <DType kType>
__global__ void split_kernel(FloatProductParams p) {
  const int64_t width = int64_t{p.chains.groups} * kGroup;
  const int64_t at = int64_t{blockIdx.x} * kSplitThreads + threadIdx.x;
  const int64_t token = at / (width / 8), chunk = at % (width / 8);
  if (token >= p.tokens) return;
  float4 values[2];
  ADDER_UNROLL
  for (int step = 0; step < 2; ++step) {
    const int k = static_cast<int>(chunk / 4 * kGroup) +
                  FloatFormat<kType>::element(static_cast<int>(chunk % 4), step);
    values[step] = load_four(p.x + token * p.x_row, k, p.in_features, p.x_aligned);
  }
  Eight x[kParts];
  x_parts(values, x);
  ADDER_UNROLL
  for (int part = 0; part < kParts; ++part) {
    uint16_t* to = p.parts + (part * p.tokens + token) * width + chunk * 8;
    *reinterpret_cast<uint4*>(to) =
        make_uint4(x[part].step[0][0], x[part].step[0][1], x[part].step[1][0], x[part].step[1][1]);
  }
}

constexpr int kStageGroups = 2;  // half a strip
// As many as fit into the 163 KB of sm_80: 3 of 40 KB, for F32 2 of 56 KB.
template <DType kType>
constexpr int kStages = kType == DType::kF32 ? 2 : 3;

template <int kLoads>
struct WideStage {
  uint4 weight[kWideOutputs][kLoads * 8];
  uint4 x[kParts][kWideTokens][8];
};

// Copies groups [2 stage, 2 stage + 2) of the block's rows; what lies outside is 0.
template <DType kType>
__device__ __forceinline__ void load_stage(const FloatProductParams& p,
                                           WideStage<FloatFormat<kType>::kLoads>& to, int stage,
                                           int64_t first_output, int64_t first_token) {
  constexpr int kLoads = FloatFormat<kType>::kLoads, kChunks = kLoads * 8;
  const auto thread = static_cast<int>(threadIdx.x);
  for (int c = thread; c < kWideOutputs * kChunks; c += kWideThreads) {
    const int row = c / kChunks, chunk = c % kChunks;
    const int64_t output = first_output + row;
    const int group = stage * kStageGroups + chunk / (4 * kLoads);
    const bool inside = output < p.outputs && group < p.chains.groups;
    const char* from = static_cast<const char*>(p.weight);
    if (inside) from += output * p.weight_row_bytes + (int64_t{stage} * kChunks + chunk) * 16;
    cp_async<16>(&to.weight[row][swizzled(row, chunk)], from, inside ? 16 : 0);
  }
  const int64_t width = int64_t{p.chains.groups} * kGroup;
  for (int c = thread; c < kParts * kWideTokens * 8; c += kWideThreads) {
    const int part = c / (kWideTokens * 8), row = c / 8 % kWideTokens, chunk = c % 8;
    const int64_t token = first_token + row;
    const bool inside = token < p.tokens && stage * kStageGroups + chunk / 4 < p.chains.groups;
    const uint16_t* from = p.parts;
    if (inside) from += (part * p.tokens + token) * width + (int64_t{stage} * 8 + chunk) * 8;
    cp_async<16>(&to.x[part][row][swizzled(row, chunk)], from, inside ? 16 : 0);
  }
}

template <DType kType>
__global__ void __launch_bounds__(kWideThreads) wide_kernel(FloatProductParams p) {
  using Format = FloatFormat<kType>;
  struct Shared {
    WideStage<Format::kLoads> stage[kStages<kType>];
  };
  auto& shared = shared_memory<Shared>();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = lane_id();
  const int g = lane / 4, i = lane % 4;
  const int64_t first_token = int64_t{blockIdx.x} * kWideTokens,
                first_output = int64_t{blockIdx.y} * kWideOutputs;
  const int warp_output = warp / 2 * kWarpOutputTiles * kTileOutputs,
            warp_token = warp % 2 * kWarpTokenTiles * kTileTokens;

  float total[kWarpOutputTiles][kWarpTokenTiles][4] = {};
  float sum[kWarpOutputTiles][kWarpTokenTiles][4] = {};
  const int stages = (p.chains.groups + kStageGroups - 1) / kStageGroups;
  const int chain_stages = p.chains.chain_strips * (kStripGroups / kStageGroups);
  const auto fetch = [&](int s) {
    if (s < stages)
      load_stage<kType>(p, shared.stage[s % kStages<kType>], s, first_output, first_token);
    cp_async_commit();  // even nothing: the waits count
  };
  for (int s = 0; s + 1 < kStages<kType>; ++s) fetch(s);
  for (int s = 0; s < stages; ++s) {
    cp_async_wait<kStages<kType> - 2>();
    __syncthreads();  // stage s is there, and nobody reads stage s - 1 any more
    fetch(s + kStages<kType> - 1);
    const auto& stage = shared.stage[s % kStages<kType>];
    ADDER_UNROLL
    for (int half = 0; half < kStageGroups; ++half) {
      if (s * kStageGroups + half >= p.chains.groups) continue;
      Eight rows[kWarpOutputTiles][2][Format::kParts];
      ADDER_UNROLL
      for (int tile = 0; tile < kWarpOutputTiles; ++tile) {
        ADDER_UNROLL
        for (int low = 0; low < 2; ++low) {
          const int row = warp_output + tile * kTileOutputs + low * 8 + g;
          uint4 raw[Format::kLoads];
          ADDER_UNROLL
          for (int part = 0; part < Format::kLoads; ++part)
            raw[part] = stage.weight[row][swizzled(row, (half * Format::kLoads + part) * 4 + i)];
          weight_parts<kType>(raw, rows[tile][low]);
        }
      }
      ADDER_UNROLL
      for (int token_tile = 0; token_tile < kWarpTokenTiles; ++token_tile) {
        const int row = warp_token + token_tile * kTileTokens + g;
        if (first_token + row - g >= p.tokens) continue;
        Eight x[kParts];
        ADDER_UNROLL
        for (int part = 0; part < kParts; ++part) {
          const uint4 v = stage.x[part][row][swizzled(row, half * 4 + i)];
          x[part] = {{{v.x, v.y}, {v.z, v.w}}};
        }
        ADDER_UNROLL
        for (int tile = 0; tile < kWarpOutputTiles; ++tile)
          multiply_group(sum[tile][token_tile], rows[tile][0], rows[tile][1], x);
      }
    }
    if ((s + 1) % chain_stages == 0 || s + 1 == stages) {
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
      finish<kType>(p, output, token, total[tile][token_tile][at]);
  });
}

// ---- Launchers ----

template <DType kType, int TokenTiles, int Warps>
void launch_skinny(CudaContext& context, const FloatProductParams& p) {
  launch(context.device, skinny_kernel<kType, TokenTiles, Warps>,
         {blocks(ceil_div(p.outputs, kTileOutputs)), dim3(Warps * kWarpSize),
          skinny_shared_bytes<TokenTiles>(p.chains)},
         p);
}

template <DType kType>
void run_skinny(CudaContext& context, const FloatProductParams& p) {
  if (p.tokens > kTileTokens) return launch_skinny<kType, 2, kSkinnyWarps>(context, p);
  // A warp of F32 has twice the bytes under way, and its registers leave no room for 16.
  if constexpr (kType != DType::kF32) {
    const int64_t blocks = ceil_div(p.outputs, kTileOutputs);
    if (blocks <= context.device.info().multiprocessors && p.chains.count > kSkinnyWarps)
      return launch_skinny<kType, 1, kManyWarps>(context, p);
  }
  launch_skinny<kType, 1, kSkinnyWarps>(context, p);
}

template <DType kType>
void run(CudaContext& context, FloatProductParams p) {
  if (p.tokens <= kSkinnyTokens) return run_skinny<kType>(context, p);
  const int64_t all_tokens = p.tokens, width = int64_t{p.chains.groups} * kGroup;
  p.parts = static_cast<uint16_t*>(context.scratch(
      static_cast<size_t>(kParts * std::min(all_tokens, kPieceTokens) * width) * sizeof(uint16_t)));
  for (int64_t begin = 0; begin < all_tokens; begin += kPieceTokens) {
    FloatProductParams piece = p;
    piece.tokens = std::min(kPieceTokens, all_tokens - begin);
    piece.x += begin * p.x_row;
    piece.out += begin * p.out_row;
    launch(context.device, split_kernel<kType>,
           {blocks(ceil_div(piece.tokens * (width / 8), kSplitThreads)), dim3(kSplitThreads)},
           piece);
    launch(context.device, wide_kernel<kType>,
           {blocks(ceil_div(piece.tokens, kWideTokens), ceil_div(p.outputs, kWideOutputs)),
            dim3(kWideThreads), kStages<kType> * sizeof(WideStage<FloatFormat<kType>::kLoads>)},
           piece);
  }
}

}  // namespace

void float_matmul(CudaContext& context, const MatmulArgs& a) {
  FloatProductParams p{};
  p.x = a.x.ptr<const float>();
  p.weight = a.weight.bytes();
  p.bias = a.bias ? a.bias.ptr<const float>() : nullptr;
  p.out = a.out.ptr<float>();
  p.chains = chains_of(a.x.dim(1));
  p.in_features = static_cast<int32_t>(a.x.dim(1));
  p.outputs = static_cast<int32_t>(a.out.dim(1));
  p.tokens = a.out.dim(0);
  p.x_row = a.x.stride[0];
  p.out_row = a.out.stride[0];
  p.weight_row_bytes = a.weight.stride[0] * static_cast<int64_t>(dtype_size(a.weight.dtype));
  p.x_aligned = reinterpret_cast<uintptr_t>(p.x) % 16 == 0 && p.x_row % 4 == 0;
  switch (a.weight.dtype) {
    case DType::kF16:
      return run<DType::kF16>(context, p);
    case DType::kBF16:
      return run<DType::kBF16>(context, p);
    default:
      return run<DType::kF32>(context, p);
  }
}

}  // namespace adder::ADDER_CUDA_NS
