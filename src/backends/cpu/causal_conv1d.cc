// Depthwise causal convolution with bias and silu in one pass over x.
//
// A task owns one sequence and up to 512 channels, and walks it in blocks of 32 tokens. Within a
// block, 2 vectors of channels move down the tokens with their taps and their last d_conv - 1
// inputs in registers; each input is loaded once. The block's rows lie in as many pages, so it
// crosses all channels of the task before the next block, and asks for the next channels ahead.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/causal_conv1d.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for every target.
#include <algorithm>

#include "backends/cpu/ops.h"
#include "backends/cpu/simd_math-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kConvUnit = 64;    // tasks hold a multiple of this many channels, 4 cache lines
constexpr int64_t kConvWidth = 512;  // and at most so many
constexpr int64_t kConvBlock = 32;   // tokens that a strip moves before the next strip follows
constexpr int64_t kConvAhead = 64;   // channels between a strip and what it asks for
constexpr int64_t kLine = 16;        // floats of a cache line

// A task's view: pointers to its first token and channel, row strides in floats.
struct ConvTask {
  int64_t tokens, width, taps;
  const float *x, *weight, *bias;  // bias may be null
  int64_t x_row, weight_row;
  float *state, *out;
  int64_t state_row, out_row;
  bool silu;
};

// Inputs before the task's first row lie in the state, oldest first.
HWY_INLINE const float* InputRow(const ConvTask& s, int64_t t) {
  return t >= 0 ? s.x + t * s.x_row : s.state + (s.taps - 1 + t) * s.state_row;
}

// Tokens [t0, t1) of kVectors vectors of channels from c on. The taps are added in the order of
// the formula, so a token's bits do not depend on where a call began.
template <int kTaps, int kVectors, class D, class V = hn::Vec<D>>
HWY_INLINE void ConvStrip(D d, const ConvTask& s, int64_t c, int64_t t0, int64_t t1) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V weight[kVectors][kTaps], window[kVectors][kTaps], bias[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    bias[v] = s.bias ? hn::LoadU(d, s.bias + c + v * lanes) : hn::Zero(d);
#pragma GCC unroll 8
    for (int k = 0; k < kTaps; ++k) {
      weight[v][k] = hn::LoadU(d, s.weight + k * s.weight_row + c + v * lanes);
    }
#pragma GCC unroll 8
    for (int k = 0; k + 1 < kTaps; ++k) {
      window[v][k + 1] = hn::LoadU(d, InputRow(s, t0 - (kTaps - 1) + k) + c + v * lanes);
    }
  }
  for (int64_t t = t0; t < t1; ++t) {
    // One line for each row; the strips of AVX-512 are 2 lines wide. Beyond the row it is harmless.
    for (int64_t i = 0; i < kVectors * lanes; i += kLine) {
      hwy::Prefetch(s.x + t * s.x_row + c + kConvAhead + i);
      hwy::Prefetch(s.out + t * s.out_row + c + kConvAhead + i);
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      V sum = bias[v];
#pragma GCC unroll 8
      for (int k = 0; k < kTaps; ++k) {
        window[v][k] =
            k + 1 < kTaps ? window[v][k + 1] : hn::LoadU(d, s.x + t * s.x_row + c + v * lanes);
        sum = hn::MulAdd(weight[v][k], window[v][k], sum);
      }
      hn::StoreU(s.silu ? Silu(d, sum) : sum, d, s.out + t * s.out_row + c + v * lanes);
    }
  }
}

// The same for any number of taps, with the inputs loaded anew for each of them.
template <class D>
HWY_INLINE void ConvStripAny(D d, const ConvTask& s, int64_t c, int64_t t0, int64_t t1) {
  for (int64_t t = t0; t < t1; ++t) {
    auto sum = s.bias ? hn::LoadU(d, s.bias + c) : hn::Zero(d);
    for (int64_t k = 0; k < s.taps; ++k) {
      const auto weight = hn::LoadU(d, s.weight + k * s.weight_row + c);
      sum = hn::MulAdd(weight, hn::LoadU(d, InputRow(s, t - (s.taps - 1) + k) + c), sum);
    }
    hn::StoreU(s.silu ? Silu(d, sum) : sum, d, s.out + t * s.out_row + c);
  }
}

// kTaps 0: any number.
template <int kTaps>
HWY_NOINLINE void ConvBlock(const ConvTask& s, int64_t t0, int64_t t1) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  if constexpr (kTaps == 0) {
    for (; c + lanes <= s.width; c += lanes) ConvStripAny(d, s, c, t0, t1);
    for (; c < s.width; ++c) ConvStripAny(d1, s, c, t0, t1);
  } else {
    for (; c + 2 * lanes <= s.width; c += 2 * lanes) ConvStrip<kTaps, 2>(d, s, c, t0, t1);
    for (; c + lanes <= s.width; c += lanes) ConvStrip<kTaps, 1>(d, s, c, t0, t1);
    for (; c < s.width; ++c) ConvStrip<kTaps, 1>(d1, s, c, t0, t1);
  }
}

void ConvTokens(const ConvTask& s) {
  for (int64_t t0 = 0; t0 < s.tokens; t0 += kConvBlock) {
    const int64_t t1 = std::min(t0 + kConvBlock, s.tokens);
    switch (s.taps) {
      case 2:
        ConvBlock<2>(s, t0, t1);
        break;
      case 3:
        ConvBlock<3>(s, t0, t1);
        break;
      case 4:
        ConvBlock<4>(s, t0, t1);
        break;
      default:
        ConvBlock<0>(s, t0, t1);
    }
  }
  // The last inputs, oldest first. Row j comes from row j + tokens > j: ascending order is safe.
  if (s.tokens == 0) return;
  for (int64_t j = 0; j + 1 < s.taps; ++j) {
    std::copy_n(InputRow(s, s.tokens - (s.taps - 1) + j), s.width, s.state + j * s.state_row);
  }
}

}  // namespace

void CausalConv1d(const CausalConv1dArgs& a, CpuContext& context) {
  const int64_t channels = a.x.dim(1), d_conv = a.weight.dim(0);
  // Two tasks for each thread, so that an uneven pair of cores finds something to balance.
  const int64_t units = (channels + kConvUnit - 1) / kConvUnit;
  const int64_t share = a.batch.n_seqs() * units / (2 * context.pool.size());
  const int64_t width = std::clamp(share * kConvUnit, kConvUnit, kConvWidth);
  const int64_t blocks = (channels + width - 1) / width;
  // A decode task is a fraction of a microsecond: hand out several at once.
  const int64_t tokens_per_seq = a.batch.n_tokens() / std::max<int64_t>(1, a.batch.n_seqs());
  const int64_t work = std::max<int64_t>(1, tokens_per_seq) * width / kConvUnit;
  const int64_t grain = std::clamp<int64_t>(32 / work, 1, 32);
  const auto run = [&](int64_t begin, int64_t end, int) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t seq = task / blocks, c0 = task % blocks * width;
      const int64_t t0 = a.batch.seq_start[static_cast<size_t>(seq)];
      const int64_t slot = a.batch.state_slot[static_cast<size_t>(seq)];
      ConvTask s;
      s.tokens = a.batch.seq_start[static_cast<size_t>(seq + 1)] - t0;
      s.width = std::min(width, channels - c0);
      s.out_row = a.out.stride[0];
      s.out = a.out.ptr<float>() + t0 * s.out_row + c0;
      if (slot < 0) {
        for (int64_t t = 0; t < s.tokens; ++t) std::fill_n(s.out + t * s.out_row, s.width, 0.0f);
        continue;
      }
      s.x_row = a.x.stride[0];
      s.x = a.x.ptr<const float>() + t0 * s.x_row + c0;
      s.weight_row = a.weight.stride[0];
      s.weight = a.weight.ptr<const float>() + c0;
      s.bias = a.bias ? a.bias.ptr<const float>() + c0 : nullptr;
      s.state_row = a.conv_state.stride[1];
      s.state = a.conv_state.ptr<float>() + slot * a.conv_state.stride[0] + c0;
      s.silu = a.silu;
      s.taps = d_conv;
      ConvTokens(s);
    }
  };
  context.pool.parallel_for(a.batch.n_seqs() * blocks, grain, run);
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adder {
HWY_EXPORT(CausalConv1d);

void cpu_causal_conv1d(const CausalConv1dArgs& args, CpuContext& context) {
  ADDER_CPU_DISPATCH(context, CausalConv1d)(args, context);
}

}  // namespace adder
#endif
