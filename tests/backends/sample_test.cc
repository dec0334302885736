// sample of every backend and instruction set against an independent implementation that sorts
// (logit, id) pairs and sums in long double.

#include <set>

#include "core/error.h"
#include "testing/inputs.h"
#include "testing/op_tensor.h"
#include "testing/targets.h"

namespace adder::testing {
namespace {

// What one row may give. A cumulative sum can come out on either side of its threshold when both
// agree to within the rounding of float64 sums (1e-9 is far above it), so each threshold is taken a
// little lower and higher: usually the set has one member.
std::set<int32_t> acceptable(const float* logits, int64_t limit, const SampleParams& p) {
  const std::set<int32_t> recent(p.recent.begin(), p.recent.end());
  std::vector<std::pair<long double, int32_t>> order;  // ascending in (-logit, id)
  for (int32_t id = 0; id < limit; ++id) {
    double logit = logits[id];
    if (recent.count(id)) logit = logit > 0 ? logit / p.repeat_penalty : logit * p.repeat_penalty;
    order.emplace_back(-static_cast<long double>(logit), id);
  }
  std::sort(order.begin(), order.end());
  if (p.temperature == 0) return {order[0].second};
  const long double largest = -order[0].first;
  std::vector<std::pair<int32_t, long double>> top;
  long double total = 0;
  for (const auto& [negative, id] : order) {
    if (p.top_k > 0 && static_cast<int64_t>(top.size()) == p.top_k) break;
    top.emplace_back(id, std::exp((-negative - largest) / p.temperature));
    total += top.back().second;
  }
  std::set<int32_t> answers;
  for (int choice = 0; choice < 8; ++choice) {
    const auto nudged = [&](int bit, long double v) {
      return v * (choice & bit ? 1 + 1e-9L : 1 - 1e-9L);
    };
    std::vector<std::pair<int32_t, long double>> left;
    long double head = 0, sum = 0;
    for (const auto& [id, weight] : top) {
      if (!left.empty() && head >= nudged(1, p.top_p) * total) break;
      head += weight;
      left.emplace_back(id, weight);
    }
    std::erase_if(left, [&](const auto& e) { return e.second < nudged(2, p.min_p); });
    if (left.empty()) left.push_back(top.front());
    for (const auto& [id, weight] : left) sum += weight;
    long double cumulative = 0;
    int32_t answer = left.back().first;
    for (const auto& [id, weight] : left) {
      cumulative += weight;
      if (cumulative > nudged(4, p.uniform) * sum) {
        answer = id;
        break;
      }
    }
    answers.insert(answer);
  }
  return answers;
}

class Sample : public BackendTest {
 protected:
  std::vector<int32_t> run(const std::vector<float>& logits, int64_t vocab, int64_t limit,
                           const std::vector<SampleParams>& params,
                           const Layout& layout = kPacked) {
    return run_on(*backend_, logits, vocab, limit, params, layout);
  }
  static std::vector<int32_t> run_on(Backend& backend, const std::vector<float>& logits,
                                     int64_t vocab, int64_t limit,
                                     const std::vector<SampleParams>& params,
                                     const Layout& layout) {
    const auto rows = static_cast<int64_t>(params.size());
    OpTensor t(backend, {rows, vocab}, layout, logits);
    std::vector<int32_t> out(params.size(), -7);
    backend.sample({t.view(), limit, params, out});
    const std::vector<float> after = t.read();
    EXPECT_TRUE(logits.empty() ||
                std::memcmp(after.data(), logits.data(), logits.size() * sizeof(float)) == 0)
        << "the logits must be left as they are";
    return out;
  }
  int32_t one(const std::vector<float>& logits, const SampleParams& params) {
    const auto vocab = static_cast<int64_t>(logits.size());
    return run(logits, vocab, vocab, {params})[0];
  }
};
ADDER_TEST_ALL_TARGETS(Sample);

SampleParams random_params(Rng& rng, const std::vector<int32_t>& recent) {
  SampleParams p;
  const float temperatures[] = {0, 0.3f, 0.7f, 1, 1, 1.5f, 5};
  p.temperature = temperatures[rng.below(7)];
  if (rng.below(2)) p.top_k = static_cast<int32_t>(1 + rng.below(rng.below(2) ? 5 : 60));
  if (rng.below(2)) p.top_p = rng.uniform(0, 1);
  if (rng.below(3) == 0) p.min_p = rng.uniform(0, 0.5f);
  if (rng.below(2)) p.repeat_penalty = rng.uniform(0.7f, 1.8f);
  p.recent = recent;
  p.uniform = rng.below(10) == 0 ? (rng.below(2) ? 0.0f : 1 - 0x1p-24f) : rng.unit();
  return p;
}

TEST_P(Sample, RandomRows) {
  Rng rng(90);
  int ambiguous = 0, total = 0;
  for (int round = 0; round < 150; ++round) {
    const int64_t vocab = 1 + rng.below(round % 10 == 0 ? 700 : 90), limit = 1 + rng.below(vocab);
    const int64_t rows = 1 + rng.below(7);
    auto logits = rng.normals(rows * vocab, 3);
    if (round % 3 == 0)  // coarse: many ties
      for (float& v : logits) v = std::round(v);
    if (round % 5 == 0)
      for (size_t i = 1; i < logits.size(); i += 3)
        if (i % vocab != 0) logits[i] = -INFINITY;  // masked by a grammar
    std::vector<std::vector<int32_t>> recent(rows);
    std::vector<SampleParams> params;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = rng.below(20); i > 0; --i)
        recent[row].push_back(static_cast<int32_t>(rng.below(vocab)));
      params.push_back(random_params(rng, recent[row]));
    }
    const auto got = run(logits, vocab, limit, params, kLayouts[round % 3]);
    for (int64_t row = 0; row < rows; ++row) {
      const auto want = acceptable(&logits[row * vocab], limit, params[row]);
      EXPECT_TRUE(want.count(got[row])) << fmt::format(
          "round {} row {}: got {}, want {}; vocab {} limit {} temperature {} top_k "
          "{} top_p {} min_p {} penalty {} uniform {}",
          round, row, got[row], *want.begin(), vocab, limit, params[row].temperature,
          params[row].top_k, params[row].top_p, params[row].min_p, params[row].repeat_penalty,
          params[row].uniform);
      ambiguous += want.size() > 1;
      ++total;
    }
  }
  // Ties on a threshold are rare, or the test would prove little.
  EXPECT_LT(ambiguous, total / 10);
}

// The vocabulary of GPT-NeoX with its padding.
TEST_P(Sample, RealVocabulary) {
  Rng rng(91);
  constexpr int64_t kVocab = 50280, kLimit = 50277;
  const auto logits = rng.normals(6 * kVocab, 2.5f);
  const std::vector<int32_t> recent = {5, 50279, 100, 100, 31000};
  std::vector<SampleParams> params;
  for (int i = 0; i < 6; ++i) params.push_back(random_params(rng, recent));
  params[0].temperature = 0;
  params[1].temperature = 1, params[1].top_k = 0, params[1].top_p = 1, params[1].min_p = 0;
  params[2].temperature = 1, params[2].top_k = 0, params[2].top_p = 0.95f;
  params[3].temperature = 1, params[3].top_k = 40;
  params[4].temperature = 2, params[4].top_k = 0, params[4].min_p = 0.01f;
  const auto got = run(logits, kVocab, kLimit, params);
  for (int64_t row = 0; row < 6; ++row)
    EXPECT_TRUE(acceptable(&logits[row * kVocab], kLimit, params[row]).count(got[row])) << row;
}

TEST_P(Sample, LowestIdWinsAmongEquals) {
  SampleParams greedy{.temperature = 0};
  for (int64_t vocab : {1, 2, 7, 8, 9, 31, 33, 64, 100}) {
    for (int64_t first = 0; first < vocab; first += 1 + vocab / 7) {
      std::vector<float> logits(static_cast<size_t>(vocab), -3);
      for (int64_t id = first; id < vocab; ++id) logits[id] = 2;
      EXPECT_EQ(one(logits, greedy), first) << vocab;
      EXPECT_EQ(one(logits, {.top_k = 1, .uniform = 0.99f}), first) << vocab;
    }
  }
  EXPECT_EQ(one({-0.0f, 0.0f}, greedy), 0);
  EXPECT_EQ(one({0.0f, -0.0f}, greedy), 0);
}

TEST_P(Sample, EachFilterByItself) {
  // Probabilities 0.4, 0.3, 0.2, 0.1 at ids 2, 0, 3, 1.
  const std::vector<float> logits = {std::log(0.3f), std::log(0.1f), std::log(0.4f),
                                     std::log(0.2f)};
  EXPECT_EQ(one(logits, {.uniform = 0.39f}), 2);
  EXPECT_EQ(one(logits, {.uniform = 0.41f}), 0);
  EXPECT_EQ(one(logits, {.uniform = 0.71f}), 3);
  EXPECT_EQ(one(logits, {.uniform = 0.95f}), 1);
  EXPECT_EQ(one(logits, {.top_k = 2, .uniform = 0.99f}), 0);
  EXPECT_EQ(one(logits, {.top_k = 2, .uniform = 0.56f}), 2);  // 0.4 / 0.7 = 0.571
  EXPECT_EQ(one(logits, {.top_p = 0.6f, .uniform = 0.99f}), 0);
  EXPECT_EQ(one(logits, {.top_p = 0.8f, .uniform = 0.99f}), 3);
  EXPECT_EQ(one(logits, {.top_p = 0, .uniform = 0.99f}), 2);  // never empty
  EXPECT_EQ(one(logits, {.min_p = 0.6f, .uniform = 0.99f}), 0);
  EXPECT_EQ(one(logits, {.min_p = 0.4f, .uniform = 0.99f}), 3);
  EXPECT_EQ(one(logits, {.min_p = 1, .uniform = 0.99f}), 2);
  // top_p counts what top_k left: 0.4 / 0.7 = 0.571 alone reaches 0.5.
  EXPECT_EQ(one(logits, {.top_k = 2, .top_p = 0.5f, .uniform = 0.99f}), 2);
  // A cold and a hot temperature: weights 0.4^4 : 0.3^4 = 0.0256 : 0.0081 : 0.0016 : 0.0001.
  EXPECT_EQ(one(logits, {.temperature = 0.25f, .uniform = 0.71f}), 2);
  EXPECT_EQ(one(logits, {.temperature = 0.25f, .uniform = 0.74f}), 0);
  EXPECT_EQ(one(logits, {.temperature = 1e-6f, .uniform = 0.99f}), 2);
  EXPECT_EQ(one(logits, {.temperature = 1e6f, .uniform = 0.74f}), 3);
}

TEST_P(Sample, RepeatPenalty) {
  const SampleParams base{.temperature = 0, .repeat_penalty = 2};
  const std::vector<int32_t> both = {0, 2}, twice = {0, 0, 0};
  SampleParams p = base;
  p.recent = both;
  EXPECT_EQ(one({3, 2, 1}, p), 1);        // 1.5, 2, 0.5
  EXPECT_EQ(one({-1, -1.5f, -1}, p), 1);  // -2, -1.5, -2: negative ones are multiplied
  p.recent = twice;
  EXPECT_EQ(one({3, 1.4f, 1}, p), 0);  // 1.5 and not 0.375: once per id
  p.repeat_penalty = 1;
  EXPECT_EQ(one({3, 2.9f, 1}, p), 0);
}

// The rows between the tokenizer's size and the padded vocabulary are never
// chosen, whatever an untrained weight makes of them.
TEST_P(Sample, PaddingIsNeverChosen) {
  std::vector<float> logits(50, -2);
  for (size_t id = 40; id < 50; ++id) logits[id] = id % 2 ? 1e30f : NAN;
  const std::vector<int32_t> recent = {45};
  for (float uniform : {0.0f, 0.5f, 1 - 0x1p-24f})
    for (float temperature : {0.0f, 1.0f}) {
      const SampleParams p{
          .temperature = temperature, .repeat_penalty = 1.5f, .recent = recent, .uniform = uniform};
      OpTensor t(*backend_, {1, 50}, kOdd, logits);
      int32_t out = -1;
      backend_->sample({t.view(), 40, {&p, 1}, {&out, 1}});
      EXPECT_GE(out, 0);
      EXPECT_LT(out, 40);
    }
}

TEST_P(Sample, MaskedIdsAreNeverChosen) {
  Rng rng(92);
  std::vector<float> logits(100, -INFINITY);
  logits[17] = -50, logits[63] = -50.5f;
  for (int i = 0; i < 50; ++i) {
    const int32_t id = one(logits, {.temperature = 3, .top_k = i % 2 * 50, .uniform = rng.unit()});
    EXPECT_TRUE(id == 17 || id == 63) << id;
  }
  EXPECT_EQ(one(logits, {.uniform = 1 - 0x1p-24f}), 63);
}

TEST_P(Sample, BrokenRowsAreAnError) {
  for (int64_t vocab : {1, 7, 8, 9, 40, 1000}) {
    const std::vector<float> good(static_cast<size_t>(vocab), 1);
    for (int64_t at : {int64_t{0}, vocab / 2, vocab - 1}) {
      for (float bad : {NAN, -NAN, INFINITY}) {
        for (float temperature : {0.0f, 1.0f}) {
          std::vector<float> logits = good;
          logits.insert(logits.end(), good.begin(), good.end());
          logits[vocab + at] = bad;
          try {
            run(logits, vocab, vocab, std::vector<SampleParams>(2, {.temperature = temperature}));
            ADD_FAILURE() << "no error for " << bad << " at " << at << " of " << vocab;
          } catch (const Error& e) {
            EXPECT_EQ(e.code(), ErrorCode::kInternal) << e.what();
            EXPECT_NE(std::string(e.what()).find("row 1"), std::string::npos) << e.what();
          }
        }
      }
    }
    const std::vector<float> masked(static_cast<size_t>(vocab), -INFINITY);
    EXPECT_THROW(run(masked, vocab, vocab, {SampleParams{}}), Error) << vocab;
  }
}

// 20,000 draws against the softmax: chi-square with 19 degrees of freedom exceeds 43.8 once in a
// thousand seeds; this seed is fixed.
TEST_P(Sample, DrawsFollowTheSoftmax) {
  Rng rng(93);
  constexpr int64_t kVocab = 20, kRows = 1000;
  constexpr int kCalls = 20;
  const auto row = rng.normals(kVocab, 1.2f);
  std::vector<float> logits;
  for (int64_t i = 0; i < kRows; ++i) logits.insert(logits.end(), row.begin(), row.end());
  std::vector<int64_t> count(kVocab);
  for (int call = 0; call < kCalls; ++call) {
    std::vector<SampleParams> params(kRows, {.temperature = 0.8f});
    for (SampleParams& p : params) p.uniform = rng.unit();
    for (int32_t id : run(logits, kVocab, kVocab, params)) ++count[id];
  }
  double sum = 0, chi_square = 0;
  for (float v : row) sum += std::exp(v / 0.8);
  for (int64_t id = 0; id < kVocab; ++id) {
    const double expected = kRows * kCalls * std::exp(row[id] / 0.8) / sum;
    ASSERT_GT(expected, 5) << "too rare for the approximation";
    chi_square += (count[id] - expected) * (count[id] - expected) / expected;
  }
  EXPECT_LT(chi_square, 43.8);
}

TEST_P(Sample, ARowDependsOnNothingElse) {
  Rng rng(94);
  const auto one_thread = GetParam().make(1), three = GetParam().make(3);
  const auto logits = rng.normals(9 * 333, 2);
  const std::vector<int32_t> recent = {1, 2, 300};
  std::vector<SampleParams> params;
  for (int i = 0; i < 9; ++i) params.push_back(random_params(rng, recent));
  const auto all = run(logits, 333, 330, params);
  EXPECT_EQ(run_on(*one_thread, logits, 333, 330, params, kOdd), all);
  EXPECT_EQ(run_on(*three, logits, 333, 330, params, kTight), all);
  for (size_t row = 0; row < 9; ++row) {
    const std::vector<float> alone(logits.begin() + row * 333, logits.begin() + (row + 1) * 333);
    EXPECT_EQ(run(alone, 333, 330, {params[row]})[0], all[row]) << row;
  }
  EXPECT_TRUE(run({}, 333, 330, {}).empty());
}

}  // namespace
}  // namespace adder::testing
