// Sampling on the CPU, which never sorts a row, against the reference, which sorts every one: equal
// ids, with ties everywhere, through each of the ways (threshold, selection, whole row).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/ops.h"
#include "backends/registry.h"
#include "core/error.h"
#include "testing/targets.h"

namespace adder {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class CpuSample : public ::testing::TestWithParam<std::string> {
 protected:
  // One draw of each backend from the same row.
  void expect_same(std::vector<float>& logits, int64_t limit, const SampleParams& params) {
    int32_t got = -1, want = -2;
    SampleArgs args;
    args.logits = Tensor(logits.data(), DType::kF32, {1, static_cast<int64_t>(logits.size())});
    args.vocab_limit = limit;
    args.params = {&params, 1};
    args.out = {&want, 1};
    ref_->sample(args);
    args.out = {&got, 1};
    cpu_sample(args, context_);
    ASSERT_EQ(got, want) << "vocab " << logits.size() << " limit " << limit << " temperature "
                         << params.temperature << " top_k " << params.top_k << " top_p "
                         << params.top_p << " min_p " << params.min_p << " penalty "
                         << params.repeat_penalty << " recent " << params.recent.size()
                         << " uniform " << params.uniform;
  }

  std::unique_ptr<Backend> ref_ = make_backend("ref");
  CpuContext context_{2, choose_isa(GetParam())};
  std::mt19937 random_{42};

  float unit() { return static_cast<float>(random_() >> 8) * 0x1p-24f; }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }
};

// `steps` > 0: logits on a grid of that many steps a unit, so that most of them have equals. The
// float64 sums of both sides differ by less than 1e-12 of the whole, and no draw of 24 bits falls
// that close to an edge but by a chance of 1e-8 a test.
TEST_P(CpuSample, DrawsTheReferencesIdsFromAllKindsOfRows) {
  for (int round = 0; round < 1500; ++round) {
    const auto vocab = one_of<size_t>({1, 2, 5, 31, 32, 33, 64, 100, 257, 300, 1000, 3001});
    const float spread = one_of({0.0f, 0.1f, 1.0f, 5.0f, 30.0f});
    const float steps = one_of({0.0f, 1.0f, 4.0f});
    std::normal_distribution<float> normal(0.0f, spread);
    std::vector<float> logits(vocab);
    for (float& v : logits) {
      v = spread > 0 ? normal(random_) : 1.0f;
      if (steps > 0) v = std::round(v * steps) / steps;
      if (random_() % 16 == 0) v = one_of({-kInfinity, 0.0f, -0.0f});
    }
    const auto limit = static_cast<int64_t>(1 + random_() % vocab);
    logits[random_() % static_cast<uint32_t>(limit)] = 2.0f;  // one finite logit at least

    std::vector<int32_t> recent(random_() % 4 == 0 ? random_() % 80 : 0);
    for (int32_t& id : recent) id = static_cast<int32_t>(random_() % vocab);
    SampleParams params;
    params.temperature = one_of({0.0f, 1e-3f, 0.3f, 1.0f, 2.5f, 100.0f});
    params.top_k = one_of<int32_t>({0, 0, 1, 2, 7, 40, 300, 5000});
    params.top_p = one_of({1.0f, 1.0f, 0.0f, 0.1f, 0.5f, 0.9f, 0.999f});
    params.min_p = one_of({0.0f, 0.0f, 1e-6f, 0.05f, 0.5f, 1.0f});
    params.repeat_penalty = one_of({1.0f, 1.1f, 3.0f, 0.7f});
    params.recent = recent;
    params.uniform = one_of({0.0f, unit(), unit(), unit(), 1.0f - 0x1p-24f});
    expect_same(logits, limit, params);
    if (HasFatalFailure()) return;
  }
}

TEST_P(CpuSample, DrawsTheReferencesIdsFromWholeVocabularies) {
  std::vector<float> logits(50288);
  for (float spread : {0.0f, 0.5f, 3.0f}) {
    std::normal_distribution<float> normal(0.0f, spread);
    for (float& v : logits) v = spread > 0 ? normal(random_) : 0.25f;
    for (int round = 0; round < 12; ++round) {
      SampleParams params;
      params.temperature = one_of({0.0f, 0.7f, 1.0f});
      params.top_k = one_of<int32_t>({0, 0, 40, 2000});
      params.top_p = one_of({1.0f, 0.9f});
      params.min_p = one_of({0.0f, 0.0f, 0.01f});
      params.uniform = unit();
      expect_same(logits, 50277, params);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CpuSample, EveryIdMayBeRecent) {
  std::vector<float> logits = {1.0f, -2.0f, 3.0f, 3.0f, -kInfinity};
  std::vector<int32_t> recent = {4, 3, 2, 1, 0, 3, 3, 0};
  for (float temperature : {0.0f, 1.0f}) {
    for (float uniform : {0.0f, 0.4f, 0.8f, 0.99f}) {
      SampleParams params;
      params.temperature = temperature;
      params.repeat_penalty = 1.5f;
      params.recent = recent;
      params.uniform = uniform;
      expect_same(logits, 5, params);
    }
  }
}

TEST_P(CpuSample, ABrokenRowIsReportedAndOthersAreLeftAlone) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
    for (size_t at : {0, 5, 33, 39}) {
      std::vector<float> logits(3 * 40, 1.0f);
      // A row of nothing but -inf has no finite largest logit either.
      if (bad == -kInfinity) std::fill_n(logits.begin() + 40, 40, bad);
      logits[40 + at] = bad;
      const std::vector<float> untouched = logits;
      std::vector<SampleParams> params(3);
      std::vector<int32_t> out(3, -1);
      SampleArgs args;
      args.logits = Tensor(logits.data(), DType::kF32, {3, 40});
      args.vocab_limit = 40;
      args.params = params;
      args.out = out;
      try {
        cpu_sample(args, context_);
        FAIL() << "accepted a row with " << bad;
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kInternal);
        EXPECT_NE(std::string(e.what()).find("row 1"), std::string::npos) << e.what();
      }
      for (size_t i = 0; i < logits.size(); ++i) {
        if (std::isfinite(untouched[i])) {
          EXPECT_EQ(logits[i], untouched[i]);
        }
      }
    }
  }
}

// What lies in the padding of the vocabulary does not matter, not even NaN.
TEST_P(CpuSample, PaddingIsNeverLookedAt) {
  std::vector<float> logits(40, std::numeric_limits<float>::quiet_NaN());
  std::fill_n(logits.begin(), 35, 0.5f);
  for (float temperature : {0.0f, 1.0f}) {
    SampleParams params;
    params.temperature = temperature;
    params.uniform = 1.0f - 0x1p-24f;
    expect_same(logits, 35, params);
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, CpuSample, ::testing::ValuesIn(cpu_isas()),
                         adder::testing::isa_name);

}  // namespace
}  // namespace adder
