// What the two forms of the Mamba-2 scan (ssd_recurrent-inl.h, ssd_chunk-inl.h) work on.
#pragma once

#include <cstdint>

namespace adder {

// Rows of a chunk. It divides kSsdChunkAlign, so pieces cut at its multiples have the same chunks.
inline constexpr int64_t kSsdChunk = 32;

// B and C of one group, from the first token of the piece on. Row strides in floats.
struct SsdGroup {
  int64_t d_state;
  const float *B, *C;
  int64_t B_row, C_row;
};

// One head of one sequence, from the first token of the piece on.
struct SsdHead {
  int64_t headdim;
  const float *x, *dt, *z;  // z may be null
  int64_t x_row, dt_row, z_row;
  const float* D;  // null, or 1 value (D_step 0), or headdim values (D_step 1)
  int64_t D_step;
  float A_log2e, dt_bias, dt_min, dt_max;
  bool dt_softplus;
  float *S, *out;  // (headdim, d_state), (tokens, headdim)
  int64_t S_row, out_row;
};

}  // namespace adder
