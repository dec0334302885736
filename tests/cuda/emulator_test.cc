// The emulator itself: what it runs is right, and what is wrong with a kernel shows.

#include "backends/cuda/shim/emulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "backends/cuda/launch.cuh"
#include "core/error.h"

namespace adder::cuda_emulated {
namespace {

constexpr unsigned kThreads = 96;

struct ReverseParams {
  const int* in;
  int* out;
  bool with_barrier;
};

struct ReverseShared {
  int tile[kThreads];
};

// Every block turns its part around.
void reverse_kernel(ReverseParams p) {
  auto& shared = shared_memory<ReverseShared>();
  const unsigned i = threadIdx.x, base = blockIdx.x * kThreads;
  shared.tile[i] = p.in[base + i];
  if (p.with_barrier) __syncthreads();
  p.out[base + i] = shared.tile[kThreads - 1 - i];
}

std::vector<int> reversed(uint64_t seed, bool with_barrier) {
  constexpr unsigned kBlocks = 5;
  std::vector<int> in(kBlocks * kThreads), out(in.size(), -1);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i);
  emulator::set_schedule({.seed = seed});
  Device device(0);
  launch(device, reverse_kernel, {dim3(kBlocks), dim3(kThreads), sizeof(ReverseShared)},
         ReverseParams{in.data(), out.data(), with_barrier});
  return out;
}

TEST(Emulator, RunsBlocksWithSharedMemoryAndBarriers) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto out = reversed(seed, true);
    for (unsigned i = 0; i < out.size(); ++i) {
      const unsigned block = i / kThreads;
      ASSERT_EQ(out[i], static_cast<int>(block * kThreads + kThreads - 1 - i % kThreads)) << seed;
    }
  }
}

// What the whole suite relies on: without the barrier the result is wrong, with every seed tried.
TEST(Emulator, AMissingBarrierShows) {
  for (uint64_t seed = 1; seed <= 20; ++seed)
    EXPECT_NE(reversed(seed, false), reversed(seed, true)) << seed;
}

TEST(Emulator, TheSameSeedGivesTheSameOrder) {
  EXPECT_EQ(reversed(7, false), reversed(7, false));
  EXPECT_NE(reversed(7, false), reversed(8, false));
}

// Runs one block of `threads`; the error's text, empty if there was none.
std::string run_block(unsigned threads, const std::function<void()>& kernel, size_t shared = 256) {
  try {
    emulator::run_grid(1, threads, shared, kernel);
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Emulator, NamesWhatIsWrongWithAKernel) {
  EXPECT_TRUE(has(run_block(64,
                            [] {
                              if (threadIdx.x < 40) named_barrier(1, 64);
                            }),
                  "deadlock"));
  EXPECT_TRUE(has(run_block(32,
                            [] {
                              if (threadIdx.x < 16)
                                __shfl_xor_sync(kFullMask, 1, 1);
                              else
                                __ballot_sync(kFullMask, 1);
                            }),
                  "disagree"));
  EXPECT_TRUE(has(run_block(32,
                            [] {
                              if (threadIdx.x == 3) __syncwarp(1);
                            }),
                  "not in the mask"));
  EXPECT_TRUE(has(run_block(32,
                            [] {
                              auto& bytes = shared_memory<unsigned char[256]>();
                              cp_async<16>(bytes + 4, bytes + 128);
                            }),
                  "not aligned"));
  EXPECT_TRUE(has(run_block(1,
                            [] {
                              auto& barrier = shared_memory<uint64_t>();
                              mbar_init(&barrier, 1);
                              mbar_wait(&barrier, 0);
                            }),
                  "wait for ever"));
  EXPECT_TRUE(has(run_block(1025, [] {}), "1024"));
  EXPECT_TRUE(has(run_block(
                      32, [] {}, 300 << 10),
                  "shared memory"));
  // And goes on to work.
  EXPECT_EQ(run_block(64, [] { __syncthreads(); }), "");
}

// Threads that have ended do not keep the others at __syncthreads.
TEST(Emulator, EndedThreadsDoNotCountAtTheBarrier) {
  EXPECT_EQ(run_block(64,
                      [] {
                        if (threadIdx.x % 3 == 0) return;
                        __syncthreads();
                      }),
            "");
}

TEST(Emulator, WarpCollectives) {
  std::vector<int> up(64), down(64), other(64), indexed(64), votes(64);
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    emulator::set_schedule({.seed = seed});
    EXPECT_EQ(run_block(64,
                        [&] {
                          const unsigned i = threadIdx.x;
                          const int v = static_cast<int>(i);
                          up[i] = __shfl_up_sync(kFullMask, v, 3);
                          down[i] = __shfl_down_sync(kFullMask, v, 5);
                          other[i] = __shfl_xor_sync(kFullMask, v, 9);
                          indexed[i] = __shfl_sync(kFullMask, v, 2, 8);
                          // Halves of a warp that go different ways.
                          const unsigned mask = i % 32 < 16 ? 0xffffu : 0xffff0000u;
                          votes[i] = static_cast<int>(__ballot_sync(mask, i % 2));
                        }),
              "");
    for (int i = 0; i < 64; ++i) {
      const int lane = i % 32;
      EXPECT_EQ(up[i], lane < 3 ? i : i - 3);
      EXPECT_EQ(down[i], lane + 5 > 31 ? i : i + 5);
      EXPECT_EQ(other[i], i ^ 9);
      EXPECT_EQ(indexed[i], i / 8 * 8 + 2);
      EXPECT_EQ(votes[i], static_cast<int>(lane < 16 ? 0xaaaau : 0xaaaa0000u));
    }
  }
}

// Asynchronous copies happen between the call and the wait, and not always at once.
TEST(Emulator, AsynchronousCopiesMayBeLate) {
  alignas(16) float from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  int late = 0;
  for (uint64_t seed = 1; seed <= 32; ++seed) {
    emulator::set_schedule({.seed = seed});
    EXPECT_EQ(run_block(1,
                        [&] {
                          auto& to = shared_memory<float[8]>();
                          cp_async<16>(to, from);
                          cp_async_commit();
                          cp_async<16>(to + 4, from + 4, 8);
                          cp_async_commit();
                          cp_async_wait<1>();
                          EXPECT_EQ(to[3], 4);
                          late += std::isnan(to[4]);
                          cp_async_wait<0>();
                          EXPECT_EQ(to[5], 6);
                          EXPECT_EQ(to[6], 0);
                        }),
              "");
  }
  EXPECT_GT(late, 4);
  EXPECT_LT(late, 28);
}

struct PipelineShared {
  alignas(16) float tile[2][64];
  alignas(8) uint64_t full[2], empty[2];
};

// One warp copies, another one adds up, through two buffers.
TEST(Emulator, BulkCopiesAndMbarriers) {
  constexpr int kTiles = 9;
  alignas(16) std::array<float, kTiles * 64> from;
  float want = 0;
  for (size_t i = 0; i < from.size(); ++i) want += from[i] = static_cast<float>(i % 13);
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    emulator::set_schedule({.seed = seed});
    float sum = 0;
    EXPECT_EQ(run_block(
                  64,
                  [&] {
                    auto& s = shared_memory<PipelineShared>();
                    if (threadIdx.x == 0)
                      for (int b = 0; b < 2; ++b)
                        mbar_init(&s.full[b], 1), mbar_init(&s.empty[b], 32);
                    fence_mbar_init();
                    __syncthreads();
                    for (int i = 0; i < kTiles; ++i) {
                      const int b = i % 2;
                      const unsigned round = static_cast<unsigned>(i / 2);
                      if (threadIdx.x >= 32) {
                        mbar_wait(&s.full[b], round % 2);
                        float part = s.tile[b][threadIdx.x - 32] + s.tile[b][threadIdx.x];
                        for (int lanes = 16; lanes > 0; lanes /= 2)
                          part += __shfl_xor_sync(kFullMask, part, lanes);
                        if (threadIdx.x == 32) sum += part;
                        mbar_arrive(&s.empty[b]);
                      } else if (threadIdx.x == 0) {
                        if (round > 0) mbar_wait(&s.empty[b], (round - 1) % 2);
                        mbar_arrive_expect(&s.full[b], sizeof s.tile[b]);
                        bulk_copy(s.tile[b], &from[static_cast<size_t>(i) * 64], sizeof s.tile[b],
                                  &s.full[b]);
                      }
                    }
                  },
                  sizeof(PipelineShared)),
              "");
    EXPECT_EQ(sum, want) << seed;
  }
}

// Fragments as the PTX ISA draws them: a product of matrices in memory, loaded by ldmatrix.
TEST(Emulator, TensorCoreFragments) {
  struct Tiles {
    alignas(16) uint16_t a[16][16], b[8][16], b_rows[16][8];
  };
  float want[16][8] = {}, got[16][8];
  Tiles tiles{};
  const auto value = [](int i) { return static_cast<float>(i * 7 % 11 - 5); };
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k) tiles.a[i][k] = f32_to_bf16(value(i * 16 + k));
  for (int k = 0; k < 16; ++k)
    for (int j = 0; j < 8; ++j)
      tiles.b[j][k] = tiles.b_rows[k][j] = f32_to_bf16(value(300 + k * 8 + j));
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j)
      for (int k = 0; k < 16; ++k) want[i][j] += value(i * 16 + k) * value(300 + k * 8 + j);
  for (const bool transposed : {false, true}) {
    EXPECT_EQ(run_block(
                  32,
                  [&] {
                    auto& s = shared_memory<Tiles>();
                    if (threadIdx.x == 0) s = tiles;
                    __syncwarp();
                    const int lane = lane_id();
                    uint32_t a[4], b4[4];
                    load_matrix_x4(a, &s.a[lane % 16][lane / 16 * 8]);
                    // Blocks 2 and 3 are loaded again, for nothing.
                    if (transposed)
                      load_matrix_x4_trans(b4, &s.b_rows[lane % 16][0]);
                    else
                      load_matrix_x4(b4, &s.b[lane % 8][lane / 8 % 2 * 8]);
                    const uint32_t b[2] = {b4[0], b4[1]};
                    float d[4] = {};
                    mma_16x8x16(d, a, b);
                    const int g = lane / 4, i = lane % 4;
                    got[g][2 * i] = d[0], got[g][2 * i + 1] = d[1];
                    got[g + 8][2 * i] = d[2], got[g + 8][2 * i + 1] = d[3];
                  },
                  sizeof(Tiles)),
              "");
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 8; ++j) EXPECT_EQ(got[i][j], want[i][j]) << i << ", " << j;
  }
}

// Blocks that wait for others: legal when a block takes its number on arrival, whatever the order.
TEST(Emulator, BlocksMayWaitForEarlierOnes) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    emulator::set_schedule({.seed = seed});
    unsigned ticket = 0;
    std::vector<uint32_t> sums(17, 0);
    EXPECT_NO_THROW(emulator::run_grid(16, 32, 0, [&] {
      if (threadIdx.x != 0) return;
      const unsigned mine = atomicAdd(&ticket, 1u);
      uint32_t before = 0;
      while (mine > 0 && (before = load_acquire(&sums[mine])) == 0) nap();
      store_release(&sums[mine + 1], before + mine + 1);
    }));
    EXPECT_EQ(sums[16], 16u * 17 / 2);
  }
}

}  // namespace
}  // namespace adder::cuda_emulated
