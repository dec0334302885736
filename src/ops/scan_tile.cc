#include "ops/scan_tile.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/plain_scan.h"
#include "ops/runtime.h"
#include "ops/tile.h"

namespace adder::ops {
namespace {

// Tokens of a piece. With 128 channels an operand's tile is 64 KB.
constexpr int64_t kPiece = 128;
constexpr int64_t kUnit = 64, kMaxWidth = 128;

}  // namespace

int64_t tile_width(int64_t group, int64_t channels) {
  const int64_t share = channels / (2 * get_num_threads()) / kUnit * kUnit;
  return std::min(group, std::clamp(share, kUnit, kMaxWidth));
}

void scan_tile(const ScanTile& tile) {
  const int64_t tokens = tile.u.dim(0), width = tile.u.dim(1), dstate = tile.A.dim(1);
  const int64_t piece = std::min(kPiece, tokens);
  Scratch scratch(5 * Scratch::padded(piece * width) + 2 * Scratch::padded(piece * dstate) +
                  2 * Scratch::padded(width * dstate) + 2 * Scratch::padded(width));
  float* A = scratch.take(width * dstate);
  float* state = scratch.take(width * dstate);
  float* D = scratch.take(width);
  float* bias = scratch.take(width);
  float* u = scratch.take(piece * width);
  float* delta = scratch.take(piece * width);
  float* z = scratch.take(piece * width);
  float* out = scratch.take(piece * width);
  float* steps = scratch.take(piece * width);
  float* B = scratch.take(piece * dstate);
  float* C = scratch.take(piece * dstate);

  gather(tile.A.permute({1, 0}), A, width);
  for (int64_t i = 0; i < width * dstate; ++i) A[i] *= std::numbers::log2e_v<float>;
  if (tile.state_in) {
    gather(tile.state_in.permute({1, 0}), state, width);
  } else {
    std::fill_n(state, width * dstate, 0.0f);
  }
  adder::SelectiveScanArgs args;
  args.A_log2e = {A, DType::kF32, {dstate, width}};
  args.D = load_vector(tile.D, D);
  args.delta_bias = load_vector(tile.delta_bias, bias);
  args.delta_softplus = tile.delta_softplus;
  args.ssm_state = {state, DType::kF32, {1, dstate, width}};
  const bool own_steps = tile.delta_softplus && tile.growing;
  Backend& backend = local_backend();
  for (int64_t t0 = 0; t0 < tokens; t0 += kPiece) {
    const int64_t count = std::min(kPiece, tokens - t0);
    const auto cut = [&](const ArrayView& x) { return x ? x.slice(0, t0, count) : x; };
    args.u = load_rows(cut(tile.u), u);
    args.delta = load_rows(cut(tile.delta), delta);
    args.z = load_rows(cut(tile.z), z);
    args.B = load_heads(cut(tile.B).insert_axis(1), B);
    args.C = load_heads(cut(tile.C).insert_axis(1), C);
    if (own_steps) {
      for (int64_t t = 0; t < count; ++t) {
        const float* row = args.delta.ptr<const float>() + t * args.delta.stride[0];
        for (int64_t c = 0; c < width; ++c)
          steps[t * width + c] = softplus(row[c] + (tile.delta_bias ? bias[c] : 0.0f));
      }
      args.delta = {steps, DType::kF32, {count, width}};
      args.delta_bias = {};
      args.delta_softplus = false;
    }
    const ArrayView to = cut(tile.out);
    args.out = output_rows(to, out);
    const int32_t seq_start[] = {0, static_cast<int32_t>(count)}, slot[] = {0};
    args.batch = {seq_start, slot};
    backend.selective_scan(args);
    flush(args.out, to);
  }
  if (tile.state_out) scatter(state, width, tile.state_out.permute({1, 0}));
}

}  // namespace adder::ops
