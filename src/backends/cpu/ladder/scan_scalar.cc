// The rungs without vectors that walk the tokens in order.
#include <array>

#include "backends/cpu/ladder/scan_view.h"

namespace adder::ladder {
namespace {

constexpr int64_t kStates = 4, kBlock = 64;

}  // namespace

// The formula as it is written: token by token, channel by channel, state by state. One call of
// exp2 for each, and the state of all channels streams through the cache for every token.
void scan_naive(const SelectiveScanArgs& args) {
  for_each_sequence(args, [](const ScanView& v) {
    for (int64_t t = 0; t < v.tokens; ++t) {
      for (int64_t d = 0; d < v.d_inner; ++d) {
        const float dt = v.dt(t, d), du = dt * v.u(t, d);
        const float *B = v.B(t, d), *C = v.C(t, d);
        float y = 0;
        for (int64_t n = 0; n < v.d_state; ++n) {
          float& h = v.h(n)[d];
          h = std::exp2(dt * v.A(n, d)) * h + du * B[n];
          y += C[n] * h;
        }
        v.finish(t, d, y);
      }
    }
  });
}

// Channels outermost, 4 states at a time with their own sums: the states stay in registers over all
// tokens, and no addition waits for the one before. y of the channel is kept between groups.
void scan_unrolled(const SelectiveScanArgs& args) {
  for_each_sequence(args, [](const ScanView& v) {
    std::array<float, kBlock> dt, du, y;
    for (int64_t d = 0; d < v.d_inner; ++d) {
      for (int64_t t0 = 0; t0 < v.tokens; t0 += kBlock) {
        const int64_t tokens = std::min(kBlock, v.tokens - t0);
        for (int64_t i = 0; i < tokens; ++i) {
          const auto k = static_cast<size_t>(i);
          dt[k] = v.dt(t0 + i, d);
          du[k] = dt[k] * v.u(t0 + i, d);
          y[k] = 0;
        }
        for (int64_t n = 0; n < v.d_state; n += kStates) {
          const int64_t states = std::min(kStates, v.d_state - n);
          std::array<float, kStates> A{}, h{};
          for (int64_t j = 0; j < states; ++j) {
            A[static_cast<size_t>(j)] = v.A(n + j, d);
            h[static_cast<size_t>(j)] = v.h(n + j)[d];
          }
          for (int64_t i = 0; i < tokens; ++i) {
            const auto k = static_cast<size_t>(i);
            const float *B = v.B(t0 + i, d) + n, *C = v.C(t0 + i, d) + n;
            std::array<float, kStates> part{};
            for (int64_t j = 0; j < states; ++j) {
              const auto s = static_cast<size_t>(j);
              h[s] = std::exp2(dt[k] * A[s]) * h[s] + du[k] * B[j];
              part[s] = C[j] * h[s];
            }
            y[k] += (part[0] + part[1]) + (part[2] + part[3]);
          }
          for (int64_t j = 0; j < states; ++j) v.h(n + j)[d] = h[static_cast<size_t>(j)];
        }
        for (int64_t i = 0; i < tokens; ++i) v.finish(t0 + i, d, y[static_cast<size_t>(i)]);
      }
    }
  });
}

}  // namespace adder::ladder
