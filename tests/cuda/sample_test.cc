// Rows that lead the sampling kernel through every way of dividing the order, which the contract's
// tests (backends/sample_test.cc) with their small vocabularies do not, against `ref`.

#include <limits>

#include "backends/cuda/shim/emulator.h"
#include "testing/inputs.h"
#include "testing/op_tensor.h"
#include "testing/targets.h"

namespace adder::testing {
namespace {

class CudaSample : public BackendTest {
 protected:
  static std::vector<int32_t> run(Backend& backend, const std::vector<float>& logits,
                                  const std::vector<SampleParams>& params) {
    const auto rows = static_cast<int64_t>(params.size());
    const auto vocab = static_cast<int64_t>(logits.size()) / rows;
    OpTensor t(backend, {rows, vocab}, kOdd, logits);
    std::vector<int32_t> out(params.size(), -7);
    backend.sample({t.view(), vocab - 3, params, out});
    return out;
  }

  // Every filter, alone and with others, at several places of the order. Sums of float64 and of
  // fixed point fall on the same side of these thresholds.
  void check(const std::vector<float>& row, const std::vector<int32_t>& recent) {
    std::vector<SampleParams> params;
    for (const int32_t top_k : {0, 40, 600})
      for (const float top_p : {1.0f, 0.6f})
        for (const float min_p : {0.0f, 0.37f})
          for (const float uniform : {0.613f, 1 - 0x1p-24f}) {
            SampleParams p{0.9f, top_k, top_p, min_p, 1.0f, {}, uniform};
            if (!recent.empty()) p.repeat_penalty = 1.3f, p.recent = recent;
            params.push_back(p);
          }
    std::vector<float> logits;
    for (size_t i = 0; i < params.size(); ++i) logits.insert(logits.end(), row.begin(), row.end());
    const auto want = run(*ref_, logits, params), got = run(*backend_, logits, params);
    for (size_t i = 0; i < params.size(); ++i)
      EXPECT_EQ(got[i], want[i]) << "top_k " << params[i].top_k << " top_p " << params[i].top_p
                                 << " min_p " << params[i].min_p << " uniform "
                                 << params[i].uniform;
  }
};
ADDER_TEST_ALL_TARGETS(CudaSample);

TEST_P(CudaSample, ThousandsOfEquals) {
  std::vector<float> row(1801, 1.5f);
  check(row, {});
  for (size_t id = 0; id < row.size(); id += 2) row[id] = id % 4 == 0 ? -0.0f : 0.0f;
  check(row, {});
}

// More than a bucket of the first histogram can tell apart: neighbouring floats far
// below an outlier.
TEST_P(CudaSample, NeighbouringFloats) {
  Rng rng(7);
  std::vector<float> row(1600);
  for (float& v : row) {
    v = 1.0f;
    for (int64_t steps = rng.below(400); steps > 0; --steps) v = std::nextafter(v, 2.0f);
  }
  check(row, {});
  row[1234] = 5.0f;
  row[77] = -std::numeric_limits<float>::max();
  check(row, {});
}

// Penalties give values between floats, and below the others.
TEST_P(CudaSample, PenalisedNeighbours) {
  Rng rng(8);
  std::vector<float> row(1500);
  for (float& v : row) v = static_cast<float>(rng.below(4)) - 1.0f;
  std::vector<int32_t> recent;
  for (int i = 0; i < 500; ++i) recent.push_back(static_cast<int32_t>(rng.below(1500)));
  check(row, recent);
}

TEST_P(CudaSample, MostIdsMasked) {
  Rng rng(9);
  std::vector<float> row(4001, -INFINITY);
  for (size_t id = 5; id < row.size(); id += 11) row[id] = rng.normal();
  check(row, {5, 16, 27});
}

TEST_P(CudaSample, VeryUnlikelyAndVeryLarge) {
  Rng rng(10);
  auto row = rng.normals(1500, 300.0f);
  check(row, {1, 2, 3});
  for (float& v : row) v *= 1e33f;
  check(row, {1, 2, 3});
}

// The same ids whatever the order of threads, hence of atomics, and whatever else is in the batch.
TEST_P(CudaSample, TheOrderOfThreadsDoesNotMatter) {
  Rng rng(11);
  const auto logits = rng.normals(8 * 1200, 1.0f);
  const std::vector<int32_t> recent = {3, 500, 3};
  std::vector<SampleParams> params;
  for (int i = 0; i < 8; ++i)
    params.push_back({1.0f, i % 2 * 600, 0.9f, 0.0f, 1.2f, recent, rng.unit()});
  const auto want = run(*ref_, logits, params);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    emulator::set_schedule({.seed = seed});
    EXPECT_EQ(run(*backend_, logits, params), want) << seed;
    const std::vector<float> last(logits.end() - 1200, logits.end());
    EXPECT_EQ(run(*backend_, last, {params.back()})[0], want.back()) << seed;
  }
}

}  // namespace
}  // namespace adder::testing
