// The names of CUDA C++ that kernels use, for the emulator. Included by arch.cuh only.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "backends/cuda/shim/emulator.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define threadIdx (::adder::emulator::thread_index())
#define blockIdx (::adder::emulator::block_index())
#define blockDim (::adder::emulator::block_dim())
#define gridDim (::adder::emulator::grid_dim())

using dim3 = adder::emulator::Dim3;

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

inline void __syncthreads() {
  adder::emulator::barrier(0, 0);
}

// Every lane is its own fiber, so a warp is only together where it says so.
enum : int { kEmuSync, kEmuShuffle, kEmuShuffleUp, kEmuShuffleDown, kEmuShuffleXor, kEmuBallot };

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  adder::emulator::exchange(mask, kEmuSync, 0);
}
inline unsigned adder_emu_lane() {
  return adder::emulator::linear_thread() % 32;
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned lane = adder_emu_lane(), segment = lane / unsigned(width) * unsigned(width);
  return adder::emulator::exchange(mask, kEmuShuffle,
                                   value)[segment + unsigned(source) % unsigned(width)];
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const auto all = adder::emulator::exchange(mask, kEmuShuffleUp, value);
  const unsigned lane = adder_emu_lane();
  return lane % unsigned(width) < delta ? value : all[lane - delta];
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const auto all = adder::emulator::exchange(mask, kEmuShuffleDown, value);
  const unsigned lane = adder_emu_lane();
  return lane % unsigned(width) + delta >= unsigned(width) ? value : all[lane + delta];
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const auto all = adder::emulator::exchange(mask, kEmuShuffleXor, value);
  const unsigned lane = adder_emu_lane(), other = lane ^ unsigned(lanes);
  // As the hardware: lanes of a later segment keep their own value.
  return other / unsigned(width) > lane / unsigned(width) ? value : all[other];
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const auto all = adder::emulator::exchange(mask, kEmuBallot, predicate);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if ((mask >> lane & 1) != 0 && all[lane] != 0) votes |= 1u << lane;
  return votes;
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask;
}

// One OS thread runs everything, so plain memory is atomic.
template <typename T>
T atomicAdd(T* at, T value) {
  const T old = *at;
  *at = old + value;
  return old;
}
template <typename T>
T atomicMax(T* at, T value) {
  const T old = *at;
  *at = std::max(old, value);
  return old;
}
template <typename T>
T atomicMin(T* at, T value) {
  const T old = *at;
  *at = std::min(old, value);
  return old;
}
template <typename T>
T atomicOr(T* at, T value) {
  const T old = *at;
  *at = old | value;
  return old;
}
template <typename T>
T atomicExch(T* at, T value) {
  const T old = *at;
  *at = value;
  return old;
}
template <typename T>
T atomicCAS(T* at, T expected, T value) {
  const T old = *at;
  if (old == expected) *at = value;
  return old;
}
inline void __threadfence() {}

inline int __popc(unsigned v) {
  return std::popcount(v);
}
inline int __ffs(int v) {
  return v == 0 ? 0 : std::countr_zero(unsigned(v)) + 1;
}
inline int __clz(int v) {
  return std::countl_zero(unsigned(v));
}
inline unsigned __float_as_uint(float v) {
  return std::bit_cast<unsigned>(v);
}
inline float __uint_as_float(unsigned v) {
  return std::bit_cast<float>(v);
}
inline long long __double_as_longlong(double v) {
  return std::bit_cast<long long>(v);
}
inline double __longlong_as_double(long long v) {
  return std::bit_cast<double>(v);
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i)
    c += int(int8_t(unsigned(a) >> (8 * i))) * int(int8_t(unsigned(b) >> (8 * i)));
  return c;
}
using std::max;
using std::min;
