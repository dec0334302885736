// The rungs that make a scan of the recurrence: h[t] = a[t] * h[t-1] + b[t] is a composition of
// maps h -> a * h + b, and compositions may be bracketed at will:
//   (a1, b1) then (a2, b2) = (a1 * a2, a2 * b1 + b2)
// That is what a machine with thousands of threads needs and a single thread pays for.
#include <bit>
#include <vector>

#include "backends/cpu/ladder/scan_view.h"

namespace adder::ladder {
namespace {

constexpr int64_t kChunk = 64;

struct Map {
  float a = 1, b = 0;
};

Map then(Map first, Map second) {
  return {first.a * second.a, second.a * first.b + second.b};
}

// Blelloch, Prefix Sums and Their Applications (1990): in a tree of 2^k leaves, an up-sweep leaves
// in each node the composition of its leaves, a down-sweep the composition of all leaves before it.
// Exclusive, in place.
void blelloch(std::vector<Map>& maps) {
  const size_t size = maps.size();
  for (size_t step = 1; step < size; step *= 2) {
    for (size_t i = 2 * step - 1; i < size; i += 2 * step) {
      maps[i] = then(maps[i - step], maps[i]);
    }
  }
  maps[size - 1] = Map{};
  for (size_t step = size / 2; step > 0; step /= 2) {
    for (size_t i = 2 * step - 1; i < size; i += 2 * step) {
      const Map left = maps[i - step];
      maps[i - step] = maps[i];
      maps[i] = then(maps[i], left);
    }
  }
}

}  // namespace

// A tree over all tokens for each channel and state: twice the work, and every pair is written out.
void scan_blelloch(const SelectiveScanArgs& args) {
  for_each_sequence(args, [](const ScanView& v) {
    if (v.tokens == 0) return;
    const auto tokens = static_cast<size_t>(v.tokens);
    std::vector<Map> own(tokens), before(std::bit_ceil(tokens));
    std::vector<float> dt(tokens), y(tokens);
    for (int64_t d = 0; d < v.d_inner; ++d) {
      for (size_t t = 0; t < tokens; ++t) dt[t] = v.dt(static_cast<int64_t>(t), d);
      std::fill(y.begin(), y.end(), 0.0f);
      for (int64_t n = 0; n < v.d_state; ++n) {
        for (size_t t = 0; t < tokens; ++t) {
          const auto row = static_cast<int64_t>(t);
          own[t] = {std::exp2(dt[t] * v.A(n, d)), dt[t] * v.B(row, d)[n] * v.u(row, d)};
        }
        std::copy(own.begin(), own.end(), before.begin());
        std::fill(before.begin() + v.tokens, before.end(), Map{});
        blelloch(before);
        float& state = v.h(n)[d];
        const float start = state;
        for (size_t t = 0; t < tokens; ++t) {
          const Map all = then(before[t], own[t]);
          const float h = all.a * start + all.b;
          y[t] += v.C(static_cast<int64_t>(t), d)[n] * h;
          state = h;
        }
      }
      for (size_t t = 0; t < tokens; ++t) v.finish(static_cast<int64_t>(t), d, y[t]);
    }
  });
}

// Chunks of 64 tokens: inside, a serial scan from a zero state that also keeps the running product
// of the decays; then the state carried in from the chunks before is added to each token. On many
// threads the chunks run side by side and only the carries are serial.
void scan_chunked(const SelectiveScanArgs& args) {
  for_each_sequence(args, [](const ScanView& v) {
    std::vector<float> dt(kChunk), du(kChunk), y(kChunk);
    std::vector<Map> maps(kChunk);
    for (int64_t d = 0; d < v.d_inner; ++d) {
      for (int64_t t0 = 0; t0 < v.tokens; t0 += kChunk) {
        const auto tokens = static_cast<size_t>(std::min(kChunk, v.tokens - t0));
        for (size_t i = 0; i < tokens; ++i) {
          const int64_t t = t0 + static_cast<int64_t>(i);
          dt[i] = v.dt(t, d);
          du[i] = dt[i] * v.u(t, d);
          y[i] = 0;
        }
        for (int64_t n = 0; n < v.d_state; ++n) {
          const float A = v.A(n, d);
          Map all;
          for (size_t i = 0; i < tokens; ++i) {
            const int64_t t = t0 + static_cast<int64_t>(i);
            all = then(all, {std::exp2(dt[i] * A), du[i] * v.B(t, d)[n]});
            maps[i] = all;
          }
          float& carry = v.h(n)[d];
          for (size_t i = 0; i < tokens; ++i) {
            const int64_t t = t0 + static_cast<int64_t>(i);
            y[i] += v.C(t, d)[n] * (maps[i].a * carry + maps[i].b);
          }
          carry = all.a * carry + all.b;
        }
        for (size_t i = 0; i < tokens; ++i) v.finish(t0 + static_cast<int64_t>(i), d, y[i]);
      }
    }
  });
}

}  // namespace adder::ladder
