// Every bar of the numeric tests, with its reason. A bar changes here or not at all.
#pragma once

#include <limits>

namespace adder::testing {

// |got - want| <= atol + rtol * |want| for each element, and sum((got - want)^2) <= nmse *
// sum(want^2) for all of them.
struct Tolerance {
  double atol = 0;
  double rtol = 0;
  double nmse = std::numeric_limits<double>::infinity();
};

// Two float64 computations whose result was rounded to float32 at the end: half a unit in the last
// place (2^-24), plus the 1e-10 that two orders of the float64 sums may differ by.
inline constexpr Tolerance kRoundedOnce{1e-10, 0x1p-24 + 1e-10};

// float32 scans against float64: the sealed bar of hallcyn/niverel-mamba, and the NMSE of ggml's
// test-backend-ops. The GPU bar of state-spaces (6e-4, 2e-3) is looser because of its parallel scan
// and fast math, which nothing here uses.
inline constexpr Tolerance kScan{2e-5, 2e-4, 1e-7};

// float32 element-wise functions, dot products and norms: 96 * eps * max(|want|, 1), the bar of
// google/highway's dot test, as a sum of both (at most twice as wide, at |want| = 1).
inline constexpr double kDotEps = 96 * 0x1p-23;
inline constexpr Tolerance kDot{kDotEps, kDotEps};

// A model's state reached by other cuts of the same tokens, float32 against float32: the bar of
// ggml-org/llama.cpp's test-recurrent-state-rollback, relative above 1 because a state is a sum.
inline constexpr Tolerance kReplay{1e-5, 1e-5};

// Its logits: dot products over d_model of states that are already apart.
inline constexpr Tolerance kReplayLogits{1e-4, 0};

}  // namespace adder::testing
