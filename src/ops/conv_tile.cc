#include "ops/conv_tile.h"

#include <algorithm>

#include "ops/plain_scan.h"
#include "ops/runtime.h"

namespace adder::ops {
namespace {

constexpr int64_t kConvUnit = 64, kConvMaxWidth = 256;

}  // namespace

int64_t conv_tile_width(int64_t dim, int64_t rows) {
  const int64_t share = rows * dim / (2 * get_num_threads()) / kConvUnit * kConvUnit;
  return std::max<int64_t>(1, std::min(dim, std::clamp(share, kConvUnit, kConvMaxWidth)));
}

ConvTile::ConvTile(const ArrayView& weight, const ArrayView& bias, bool silu, int64_t longest)
    : channels_(weight.dim(0)),
      width_(weight.dim(1)),
      piece_(std::min(kPiece, longest)),
      silu_(silu),
      scratch_(Scratch::padded(channels_ * width_) + Scratch::padded(channels_) +
               Scratch::padded(channels_ * (width_ - 1)) + 2 * Scratch::padded(channels_ * piece_)),
      weight_(scratch_.take(channels_ * width_)),
      bias_(scratch_.take(channels_)),
      state_(scratch_.take(channels_ * (width_ - 1))),
      x_(scratch_.take(channels_ * piece_)),
      out_(scratch_.take(channels_ * piece_)),
      has_bias_(bias.given) {
  gather(weight.permute({1, 0}), weight_, channels_);
  if (bias) load_vector(bias, bias_);
}

void ConvTile::clear_state() {
  std::fill_n(state_, channels_ * (width_ - 1), 0.0f);
}

void ConvTile::run(const ArrayView& x, const ArrayView& out) {
  adder::CausalConv1dArgs args;
  args.weight = {weight_, DType::kF32, {width_, channels_}};
  if (has_bias_) args.bias = {bias_, DType::kF32, {channels_}};
  args.conv_state = {state_, DType::kF32, {1, width_ - 1, channels_}};
  args.silu = silu_;
  const int64_t tokens = x.dim(0);
  for (int64_t t0 = 0; t0 < tokens; t0 += kPiece) {
    const int64_t count = std::min(kPiece, tokens - t0);
    const ArrayView to = out.slice(0, t0, count);
    args.x = load_rows(x.slice(0, t0, count), x_);
    if (width_ == 1) {
      run_pointwise(args.x, out_, count);
      scatter(out_, channels_, to);
      continue;
    }
    args.out = output_rows(to, out_);
    const int32_t seq_start[] = {0, static_cast<int32_t>(count)}, slot[] = {0};
    args.batch = {seq_start, slot};
    local_backend().causal_conv1d(args);
    flush(args.out, to);
  }
}

void ConvTile::run_pointwise(const Tensor& x, float* out, int64_t tokens) const {
  for (int64_t t = 0; t < tokens; ++t) {
    const float* row = x.ptr<const float>() + t * x.stride[0];
    for (int64_t c = 0; c < channels_; ++c) {
      const float sum = (has_bias_ ? bias_[c] : 0.0f) + weight_[c] * row[c];
      out[t * channels_ + c] = silu_ ? silu(sum) : sum;
    }
  }
}

}  // namespace adder::ops
