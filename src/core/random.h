// Random numbers that depend on (seed, index) alone: no hidden state to save, and the same for a
// sequence whatever runs beside it.
#pragma once

#include <cstdint>

namespace adder {

// splitmix64's output function (Steele, Lea, Flood: Fast splittable pseudorandom number
// generators).
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Uniform in [0, 1), a multiple of 2^-24, so that it never rounds up to 1.
constexpr float uniform_at(uint64_t seed, uint64_t index) {
  const uint64_t bits =
      mix64(mix64(seed + 0x9e3779b97f4a7c15ull) + 0x9e3779b97f4a7c15ull * (index + 1));
  return static_cast<float>(bits >> 40) * 0x1p-24f;
}

// One link of the hash chain that names a prefix of tokens.
constexpr uint64_t extend_token_hash(uint64_t hash, int32_t token) {
  return mix64(hash + 0x9e3779b97f4a7c15ull * (static_cast<uint32_t>(token) + 1ull));
}

}  // namespace adder
