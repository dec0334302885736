// Everything that a kernel does beyond plain CUDA C++, with a twin for the emulator beside each:
// the only header with inline PTX. References are to the sections of the PTX ISA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/namespace.h"
#include "core/dtype.h"
#ifdef ADDER_CUDA_EMULATED
#include "backends/cuda/shim/cuda_names.h"
#endif

namespace adder::ADDER_CUDA_NS {

// Before a loop over registers, which have no addresses: it must be unrolled.
#ifdef ADDER_CUDA_EMULATED
#define ADDER_UNROLL
#else
#define ADDER_UNROLL _Pragma("unroll")
#endif
// Before a loop whose addresses, were it unrolled, would take registers that others need.
#ifdef ADDER_CUDA_EMULATED
#define ADDER_ROLLED
#else
#define ADDER_ROLLED _Pragma("unroll 1")
#endif

inline constexpr unsigned kFullMask = 0xffffffffu;
inline constexpr int kWarpSize = 32;

// ---- Shared memory: all of it dynamic, one struct per kernel ----

template <typename T>
__device__ __forceinline__ T& shared_memory() {
  static_assert(alignof(T) <= 1024);
#ifdef ADDER_CUDA_EMULATED
  return *reinterpret_cast<T*>(emulator::shared_memory());
#else
  extern __shared__ __align__(1024) unsigned char adder_shared[];
  return *reinterpret_cast<T*>(adder_shared);
#endif
}

// ---- Arithmetic ----

// 2^x by the special function unit, 2 ulp; results below 2^-126 are 0 (ex2.approx.ftz).
__device__ __forceinline__ float ex2(float x) {
#ifdef ADDER_CUDA_EMULATED
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// 1 / x, 1 ulp (rcp.approx.ftz).
__device__ __forceinline__ float reciprocal(float x) {
#ifdef ADDER_CUDA_EMULATED
  return 1.0f / x;
#else
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// Two floats as bfloat16, rounded to nearest even; `low` in the lower half (cvt.rn.bf16x2).
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
#ifdef ADDER_CUDA_EMULATED
  return uint32_t{f32_to_bf16(low)} | uint32_t{f32_to_bf16(high)} << 16;
#else
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
#endif
}

// binary16, exact for every pattern (cvt.f32.f16).
__device__ __forceinline__ float half_to_float(uint32_t bits) {
#ifdef ADDER_CUDA_EMULATED
  return f16_to_f32(static_cast<uint16_t>(bits));
#else
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(static_cast<uint16_t>(bits)));
  return y;
#endif
}

// An activation is float or Bf16; arithmetic is float32 in either case.
struct Bf16 {
  uint16_t bits;
};
__device__ __forceinline__ float to_float(float v) {
  return v;
}
__device__ __forceinline__ float to_float(Bf16 v) {
  return bf16_to_f32(v.bits);
}
template <typename T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ float from_float<float>(float v) {
  return v;
}
template <>
__device__ __forceinline__ Bf16 from_float<Bf16>(float v) {
#ifdef ADDER_CUDA_EMULATED
  return {f32_to_bf16(v)};
#else
  Bf16 rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded.bits) : "f"(v));
  return rounded;
#endif
}

// ---- Waiting ----

__device__ __forceinline__ int lane_id() {
#ifdef ADDER_CUDA_EMULATED
  return static_cast<int>(emulator::linear_thread() % 32);
#else
  int lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
#endif
}

// bar.sync: `threads`, a multiple of 32, meet at barrier `id` (1 to 15; 0 is __syncthreads).
__device__ __forceinline__ void named_barrier(int id, int threads) {
#ifdef ADDER_CUDA_EMULATED
  emulator::barrier(id, static_cast<unsigned>(threads));
#else
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
#endif
}

// In a loop that waits for another thread block.
__device__ __forceinline__ void nap() {
#ifdef ADDER_CUDA_EMULATED
  emulator::nap();
#else
  __nanosleep(20);
#endif
}

// Reads and writes that order the memory around them, for flags between thread blocks.
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* at) {
#ifdef ADDER_CUDA_EMULATED
  return *at;
#else
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
#endif
}
__device__ __forceinline__ void store_release(uint32_t* at, uint32_t value) {
#ifdef ADDER_CUDA_EMULATED
  *at = value;
#else
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
#endif
}

// ---- Memory ----

#ifndef ADDER_CUDA_EMULATED
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
#endif

// 16 bytes that are read once: past L1 (ld.global.nc.L1::no_allocate).
__device__ __forceinline__ uint4 load_stream(const uint4* from) {
#ifdef ADDER_CUDA_EMULATED
  return *from;
#else
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
#endif
}

// cp.async (section "Data Movement"): Size bytes to shared memory, of which the first `bytes` are
// read and the rest is 0. Group by group: commit, then wait until at most Left groups are open.
template <int Size>
__device__ __forceinline__ void cp_async(void* to_shared, const void* from, int bytes = Size) {
  static_assert(Size == 4 || Size == 8 || Size == 16);
#ifdef ADDER_CUDA_EMULATED
  emulator::async_copy(to_shared, from, Size, static_cast<size_t>(bytes));
#else
  if constexpr (Size == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to_shared)),
                 "l"(from), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to_shared)),
                 "l"(from), "n"(Size), "r"(bytes)
                 : "memory");
#endif
}
__device__ __forceinline__ void cp_async_commit() {
#ifdef ADDER_CUDA_EMULATED
  emulator::async_commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int Left>
__device__ __forceinline__ void cp_async_wait() {
#ifdef ADDER_CUDA_EMULATED
  emulator::async_wait(Left);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
#endif
}

// mbarrier (section "Parallel Synchronization and Communication"), in shared memory. One thread
// makes it, fences, and all meet once before it is used.
__device__ __forceinline__ void mbar_init(uint64_t* barrier, int arrivals) {
#ifdef ADDER_CUDA_EMULATED
  emulator::mbarrier_init(barrier, static_cast<unsigned>(arrivals));
#else
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
#endif
}
__device__ __forceinline__ void mbar_arrive(uint64_t* barrier) {
#ifdef ADDER_CUDA_EMULATED
  emulator::mbarrier_arrive(barrier);
#else
  asm volatile(
      "{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(barrier))
      : "memory");
#endif
}
// Waits until the phase of this parity (0 for the first) is complete.
__device__ __forceinline__ void mbar_wait(uint64_t* barrier, unsigned parity) {
#ifdef ADDER_CUDA_EMULATED
  while (!emulator::mbarrier_test(barrier, parity)) emulator::nap();
#else
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
#endif
}

// sm_90 only: one thread arrives and says how many bytes of bulk copies the phase waits for.
__device__ __forceinline__ void mbar_arrive_expect(uint64_t* barrier, int bytes) {
#ifdef ADDER_CUDA_EMULATED
  emulator::mbarrier_expect(barrier, static_cast<unsigned>(bytes));
  emulator::mbarrier_arrive(barrier);
#elif __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(
                   shared_address(barrier)),
               "r"(bytes)
               : "memory");
#endif
}
// sm_90 only: TMA without a tensor map. Sizes and addresses are multiples of 16.
__device__ __forceinline__ void bulk_copy(void* to_shared, const void* from, int bytes,
                                          uint64_t* barrier) {
#ifdef ADDER_CUDA_EMULATED
  emulator::bulk_copy(to_shared, from, static_cast<size_t>(bytes), barrier);
#elif __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to_shared)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#endif
}
// Orders this thread's accesses to shared memory before later ones of the copy engine
// (fence.proxy.async).
__device__ __forceinline__ void fence_proxy_async() {
#if !defined(ADDER_CUDA_EMULATED) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
// Makes initialised mbarriers visible to the copy engine (fence.mbarrier_init).
__device__ __forceinline__ void fence_mbar_init() {
#if !defined(ADDER_CUDA_EMULATED) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// ---- Tensor cores ----

// D = A * B + D for one warp: A 16 x 16 bfloat16 row-major, B 16 x 8 bfloat16 column-major, D 16 x
// 8 float32 (mma.sync.aligned.m16n8k16). With g = lane / 4 and i = lane % 4, a register holds two
// neighbours along k (columns of D):
//   a[0] (g, 2i)  a[1] (g + 8, 2i)  a[2] (g, 2i + 8)  a[3] (g + 8, 2i + 8)
//   b[0] (2i, g)  b[1] (2i + 8, g)          d[0], d[1] (g, 2i)  d[2], d[3] (g + 8, 2i)
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
#ifdef ADDER_CUDA_EMULATED
  struct Fragments {
    uint32_t a[4], b[2];
  } mine{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const auto all = emulator::exchange(kFullMask, /*kind=*/100, mine);
  const unsigned lane = emulator::linear_thread() % 32, g = lane / 4, i = lane % 4;
  const auto half = [](uint32_t pair, unsigned k) {
    return bf16_to_f32(static_cast<uint16_t>(pair >> (16 * (k % 2))));
  };
  Fragments left[4], right[2][4];  // by pair: rows g and g + 8, columns 2i and 2i + 1
  for (unsigned pair = 0; pair < 4; ++pair) {
    left[pair] = all[g * 4 + pair];
    for (unsigned column = 0; column < 2; ++column)
      right[column][pair] = all[(2 * i + column) * 4 + pair];
  }
  for (unsigned at = 0; at < 4; ++at) {
    float sum = d[at];
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned pair = k % 8 / 2;
      sum += half(left[pair].a[k / 8 * 2 + at / 2], k) * half(right[at % 2][pair].b[k / 8], k);
    }
    d[at] = sum;
  }
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// D = A * B + D in integers: A 16 x 32 int8 row-major, B 32 x 8 int8 column-major, D 16 x 8 int32
// (mma.sync.aligned.m16n8k32). A register holds four neighbours along k; g and i as above:
//   a[0] (g, 4i)  a[1] (g + 8, 4i)  a[2] (g, 4i + 16)  a[3] (g + 8, 4i + 16)
//   b[0] (4i, g)  b[1] (4i + 16, g)         d as above
__device__ __forceinline__ void mma_16x8x32(int32_t (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
#ifdef ADDER_CUDA_EMULATED
  struct Fragments {
    uint32_t a[4], b[2];
  } mine{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const auto all = emulator::exchange(kFullMask, /*kind=*/103, mine);
  const unsigned lane = emulator::linear_thread() % 32, g = lane / 4, i = lane % 4;
  for (unsigned quad = 0; quad < 4; ++quad) {
    const Fragments left = all[g * 4 + quad];
    for (unsigned at = 0; at < 4; ++at) {
      const Fragments right = all[(2 * i + at % 2) * 4 + quad];
      for (unsigned half = 0; half < 2; ++half)
        d[at] = __dp4a(static_cast<int>(left.a[half * 2 + at / 2]), static_cast<int>(right.b[half]),
                       d[at]);
    }
  }
#else
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// Four 8 x 8 blocks of 16-bit elements from shared memory: lane l gives the address of row l % 8 of
// block l / 8 (16 bytes, aligned), and gets elements 2i, 2i + 1 of row g of block r in out[r]
// (ldmatrix.x4; g and i as above).
__device__ __forceinline__ void load_matrix_x4(uint32_t (&out)[4], const void* row) {
#ifdef ADDER_CUDA_EMULATED
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
    emulator::kernel_error("an address of ldmatrix is not aligned to 16");
  const auto rows = emulator::exchange(kFullMask, /*kind=*/101, row);
  const unsigned lane = emulator::linear_thread() % 32, g = lane / 4, i = lane % 4;
  for (unsigned r = 0; r < 4; ++r)
    std::memcpy(&out[r], static_cast<const std::byte*>(rows[8 * r + g]) + 4 * i, 4);
  __syncwarp();  // the hardware has read everything before a lane goes on
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
#endif
}
// The same with each block transposed: elements (2i, g) and (2i + 1, g) of block r.
__device__ __forceinline__ void load_matrix_x4_trans(uint32_t (&out)[4], const void* row) {
#ifdef ADDER_CUDA_EMULATED
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
    emulator::kernel_error("an address of ldmatrix is not aligned to 16");
  const auto rows = emulator::exchange(kFullMask, /*kind=*/102, row);
  const unsigned lane = emulator::linear_thread() % 32, g = lane / 4, i = lane % 4;
  for (unsigned r = 0; r < 4; ++r) {
    uint16_t pair[2];
    for (unsigned k = 0; k < 2; ++k)
      std::memcpy(&pair[k], static_cast<const std::byte*>(rows[8 * r + 2 * i + k]) + 2 * g, 2);
    out[r] = uint32_t{pair[0]} | uint32_t{pair[1]} << 16;
  }
  __syncwarp();
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
#endif
}

}  // namespace adder::ADDER_CUDA_NS
