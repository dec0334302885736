// Some neighbouring channels of the causal convolution, on the backend.
#pragma once

#include "ops/array_view.h"
#include "ops/tile.h"

namespace adder::ops {

// The weights of W channels and the last inputs of one sequence; both keep to the scratch of the
// calling thread, which nobody else may use meanwhile.
class ConvTile {
 public:
  // weight (W, width); bias (W), optional.
  ConvTile(const ArrayView& weight, const ArrayView& bias, bool silu, int64_t longest);

  // (width - 1, W), oldest first.
  float* state() { return state_; }
  void clear_state();
  // x and out (T, W), in pieces of time.
  void run(const ArrayView& x, const ArrayView& out);

 private:
  void run_pointwise(const Tensor& x, float* out, int64_t tokens) const;

  static constexpr int64_t kPiece = 128;
  int64_t channels_, width_, piece_;
  bool silu_;
  Scratch scratch_;
  float *weight_, *bias_, *state_, *x_, *out_;
  bool has_bias_;
};

// Channels of a tile, out of `rows` times `dim` in all. Results do not depend on it.
int64_t conv_tile_width(int64_t dim, int64_t rows);

}  // namespace adder::ops
