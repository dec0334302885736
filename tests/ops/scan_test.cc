// The drop-in scans: strided operands, threads, errors. Values are held against loops in float64
// here and, in all dtypes and forms, in python/tests/test_ops_scan.py.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "core/error.h"
#include "ops/runtime.h"
#include "ops/selective_scan.h"
#include "ops/selective_state_update.h"
#include "testing/inputs.h"

namespace adder::ops {
namespace {

using testing::Rng;

// (2, dim, seqlen) scans with one group; the memory of every operand.
struct ScanProblem {
  int64_t dim = 70, seqlen = 150, dstate = 5;
  std::vector<float> u, delta, A, B, C, z, out, state;
  SelectiveScanFnArgs args;

  explicit ScanProblem(uint64_t seed) {
    Rng rng(seed);
    const int64_t size = 2 * dim * seqlen;
    u = rng.normals(size);
    delta = rng.normals(size);
    z = rng.normals(size);
    A = rng.uniforms(dim * dstate, -2.0f, -0.01f);
    B = rng.normals(2 * dstate * seqlen);
    C = rng.normals(2 * dstate * seqlen);
    out.resize(static_cast<size_t>(size));
    state.resize(static_cast<size_t>(2 * dim * dstate));
    args.u = {u.data(), DType::kF32, {2, dim, seqlen}};
    args.delta = {delta.data(), DType::kF32, {2, dim, seqlen}};
    args.z = {z.data(), DType::kF32, {2, dim, seqlen}};
    args.A = {A.data(), DType::kF32, {dim, dstate}};
    args.B = {B.data(), DType::kF32, {2, dstate, seqlen}};
    args.C = {C.data(), DType::kF32, {2, dstate, seqlen}};
    args.delta_softplus = true;
    args.out = {out.data(), DType::kF32, {2, dim, seqlen}};
    args.last_state = {state.data(), DType::kF32, {2, dim, dstate}};
  }
};

class ThreadCount {
 public:
  explicit ThreadCount(int n) { set_num_threads(n); }
  ~ThreadCount() { set_num_threads(0); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;
};

TEST(SelectiveScanFn, EqualsTheRecurrence) {
  ScanProblem p(1);
  selective_scan_fn(p.args);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t d = 0; d < p.dim; ++d) {
      std::vector<double> h(static_cast<size_t>(p.dstate), 0.0);
      const int64_t row = (b * p.dim + d) * p.seqlen;
      for (int64_t t = 0; t < p.seqlen; ++t) {
        const auto at = static_cast<size_t>(row + t);
        const double dt = std::log1p(std::exp(double{p.delta[at]}));
        double y = 0;
        for (int64_t n = 0; n < p.dstate; ++n) {
          const auto bc = static_cast<size_t>((b * p.dstate + n) * p.seqlen + t);
          double& state = h[static_cast<size_t>(n)];
          state = std::exp(dt * p.A[static_cast<size_t>(d * p.dstate + n)]) * state +
                  dt * p.B[bc] * p.u[at];
          y += p.C[bc] * state;
        }
        const double want = y * p.z[at] / (1 + std::exp(-double{p.z[at]}));
        // The float32 bar of the scans: sums in another order.
        ASSERT_NEAR(p.out[at], want, 2e-5 + 2e-4 * std::abs(want));
      }
      for (int64_t n = 0; n < p.dstate; ++n) {
        const double want = h[static_cast<size_t>(n)];
        ASSERT_NEAR(p.state[static_cast<size_t>((b * p.dim + d) * p.dstate + n)], want,
                    2e-5 + 2e-4 * std::abs(want));
      }
    }
  }
}

TEST(SelectiveScanFn, HasTheSameBitsOnAnyNumberOfThreads) {
  ScanProblem one(2), many(2);
  {
    const ThreadCount threads(1);
    selective_scan_fn(one.args);
  }
  const ThreadCount threads(4);
  EXPECT_EQ(get_num_threads(), 4);
  selective_scan_fn(many.args);
  EXPECT_EQ(one.out, many.out);
  EXPECT_EQ(one.state, many.state);
}

TEST(SelectiveScanFn, RunsInManyThreadsAtOnce) {
  ScanProblem want(3);
  selective_scan_fn(want.args);
  std::vector<ScanProblem> problems;
  problems.reserve(4);
  for (int i = 0; i < 4; ++i) problems.emplace_back(3);
  std::vector<std::thread> threads;
  for (ScanProblem& p : problems) {
    threads.emplace_back([&p] {
      // The vectors have not moved: the problems were made in place.
      for (int round = 0; round < 3; ++round) selective_scan_fn(p.args);
    });
  }
  threads.emplace_back([] { set_num_threads(3); });
  for (std::thread& t : threads) t.join();
  set_num_threads(0);
  for (const ScanProblem& p : problems) EXPECT_EQ(p.out, want.out);
}

TEST(SelectiveScanFn, TakesOffsetsBeyond32Bits) {
  // Steps in time of 5 GB, of a single step: never followed, but multiplied.
  ScanProblem p(4);
  for (ArrayView* x : {&p.args.u, &p.args.delta, &p.args.z, &p.args.out}) {
    *x = x->slice(2, 0, 1);
    x->stride[2] = int64_t{5} << 30;
  }
  p.args.B = p.args.B.slice(2, 0, 1);
  p.args.C = p.args.C.slice(2, 0, 1);
  selective_scan_fn(p.args);
  EXPECT_TRUE(std::isfinite(p.out[0]));
  EXPECT_EQ(p.out[1], 0.0f);
}

TEST(SelectiveStateUpdate, LeavesOtherSlotsAlone) {
  constexpr int64_t kSlots = 4, kDim = 9, kState = 3;
  Rng rng(5);
  std::vector<float> state = rng.normals(kSlots * kDim * kState), x = rng.normals(2 * kDim),
                     dt = rng.normals(2 * kDim), A = rng.uniforms(kDim * kState, -2.0f, -0.1f),
                     B = rng.normals(2 * kState), out(2 * kDim, 7.0f);
  const std::vector<float> before = state;
  std::vector<int64_t> slots = {-1, 2};
  SelectiveStateUpdateArgs args;
  args.state = {state.data(), DType::kF32, {kSlots, kDim, kState}};
  args.x = {x.data(), DType::kF32, {2, kDim}};
  args.dt = {dt.data(), DType::kF32, {2, kDim}};
  args.A = {A.data(), DType::kF32, {kDim, kState}};
  args.B = args.C = {B.data(), DType::kF32, {2, kState}};
  args.dt_softplus = true;
  args.state_batch_indices = {slots.data(), DType::kI64, {2}};
  args.out = {out.data(), DType::kF32, {2, kDim}};
  selective_state_update(args);
  for (int64_t i = 0; i < kSlots * kDim * kState; ++i) {
    const bool updated = i / (kDim * kState) == 2;
    EXPECT_EQ(state[static_cast<size_t>(i)] == before[static_cast<size_t>(i)], !updated) << i;
  }
  for (size_t i = 0; i < kDim; ++i) EXPECT_EQ(out[i], 0.0f);
}

TEST(RunTasks, ThrowsWhatATaskThrew) {
  const ThreadCount threads(3);
  int64_t done = 0;
  EXPECT_THROW(run_tasks(50, 1 << 20,
                         [](int64_t task) {
                           if (task == 17) bad_input("task {}", task);
                         }),
               Error);
  run_tasks(3, 1, [&](int64_t) { ++done; });  // small: all on this thread
  EXPECT_EQ(done, 3);
}

}  // namespace
}  // namespace adder::ops
