// The Mamba-1 recurrence of one channel as a plain loop, for operands that the backends' scans do
// not take: complex A, B and C, and B or C that are constant in time.
#pragma once

#include "ops/array_view.h"

namespace adder::ops {

// Sizes: T tokens, N states. See ops/selective_scan.h for the formulas.
struct PlainScan {
  ArrayView u, delta, z, out;  // (T); z optional
  ArrayView A;                 // (N), real or complex
  ArrayView B, C;              // (T, N); with complex A (2 T, N), real and imaginary rows in turn;
                               // or constant: (N), real or complex
  float D = 0.0f, delta_bias = 0.0f;
  bool delta_softplus = false;
  ArrayView state_in, state_out;  // (N), complex if A is; optional
};

void plain_scan(const PlainScan& scan);

// v > 20 ? v : log1p(exp(v)); silu(v) = v / (1 + exp(-v))
float softplus(float v);
float silu(float v);

}  // namespace adder::ops
