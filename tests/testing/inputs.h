// Seeded random inputs. The distributions of <random> differ between standard libraries; these give
// the same numbers everywhere.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace adder::testing {

// splitmix64 (public domain, Sebastiano Vigna).
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // [0, count)
  int64_t below(int64_t count) {
    return static_cast<int64_t>(bits() % static_cast<uint64_t>(count));
  }
  // [0, 1), 24 bits: exact in float32.
  float unit() { return static_cast<float>(bits() >> 40) * 0x1p-24f; }
  float uniform(float low, float high) { return low + (high - low) * unit(); }
  // Close to a standard normal (a sum of uniforms, so no tails beyond 6), exact arithmetic only.
  float normal() {
    float sum = -6;
    for (int i = 0; i < 12; ++i) sum += unit();
    return sum;
  }

  std::vector<float> uniforms(int64_t count, float low, float high) {
    std::vector<float> v(static_cast<size_t>(count));
    for (float& x : v) x = uniform(low, high);
    return v;
  }
  std::vector<float> normals(int64_t count, float scale = 1.0f) {
    std::vector<float> v(static_cast<size_t>(count));
    for (float& x : v) x = scale * normal();
    return v;
  }

 private:
  uint64_t state_;
};

inline void round_to_bf16(std::vector<float>& values) {
  for (float& x : values) x = bf16_to_f32(f32_to_bf16(x));
}

}  // namespace adder::testing
