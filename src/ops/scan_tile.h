// Some neighbouring channels of one sequence of the Mamba-1 scan, in pieces of time, on the
// backend.
#pragma once

#include "ops/array_view.h"

namespace adder::ops {

// Sizes: T tokens, W channels, N states. One group: B and C are shared by all channels.
struct ScanTile {
  ArrayView u, delta, z, out;  // (T, W); z optional
  ArrayView A;                 // (W, N)
  ArrayView B, C;              // (T, N)
  ArrayView D, delta_bias;     // (W); optional
  bool delta_softplus = false;
  // A of the whole call has a number above 0 (any_above_zero), which the backend does not take with
  // softplus. Of the call, not of the tile: the bits of a channel must not depend on its
  // neighbours.
  bool growing = false;
  ArrayView state_in;   // (W, N); optional: 0
  ArrayView state_out;  // (W, N); optional; may be state_in
};

void scan_tile(const ScanTile& tile);

// Channels of a tile: a multiple of 64 unless the group is smaller, such that its operands stay in
// the cache and `channels` in all make enough tiles for the threads. Results do not depend on it.
int64_t tile_width(int64_t group, int64_t channels);

}  // namespace adder::ops
