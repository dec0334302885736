// Whole models against an independent implementation (tests/golden/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "backends/registry.h"
#include "core/error.h"
#include "model/language_model.h"

namespace adder {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::string folder, backend;
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return info.param.folder + "_" + info.param.backend;
}

// A build may have a backend for a GPU that the machine has not. tests/xla has models of its own.
bool runs_here(const std::string& backend) {
  if (backend == "xla") return false;
  try {
    make_backend(backend, 1);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<Case> cases() {
  std::vector<std::string> backends = available_backends();
  std::erase_if(backends, [](const std::string& name) { return !runs_here(name); });
  std::vector<Case> all;
  for (const auto& entry : fs::directory_iterator(ADDER_SOURCE_DIR "/tests/golden")) {
    if (!fs::exists(entry.path() / "expected.json")) continue;
    for (const std::string& backend : backends) {
      all.push_back({entry.path().filename().string(), backend});
    }
  }
  std::sort(all.begin(), all.end(), [](const Case& a, const Case& b) {
    return std::tie(a.folder, a.backend) < std::tie(b.folder, b.backend);
  });
  return all;
}

// A model with one sequence and everything that it needs.
class Session {
 public:
  Session(const std::string& path, const std::string& backend_name)
      : backend(make_backend(backend_name, 2)),
        model(std::make_shared<Checkpoint>(Checkpoint::open(path)), *backend),
        pool(model.config(), *backend, 2),
        workspace(model.config(), *backend, 64, 64),
        state(pool.acquire()) {}

  // Logits of every position of `tokens`, fed in one step.
  std::vector<std::vector<float>> feed(std::span<const int32_t> tokens) {
    const std::vector<int32_t> starts = {0, static_cast<int32_t>(tokens.size())};
    const std::vector<int32_t> slots = {state.slot()};
    const Tensor hidden = model.forward(tokens, {starts, slots}, pool, workspace);
    std::vector<int32_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    const Tensor logits = model.logits(hidden, rows, workspace);
    std::vector<std::vector<float>> out(tokens.size(),
                                        std::vector<float>(static_cast<size_t>(logits.dim(1))));
    for (size_t i = 0; i < out.size(); ++i) {
      backend->read(logits.select(static_cast<int64_t>(i)),
                    std::as_writable_bytes(std::span(out[i])));
    }
    return out;
  }

  std::unique_ptr<Backend> backend;
  LanguageModel model;
  StatePool pool;
  Workspace workspace;
  StateHandle state;
};

// float32 logits against a float64 oracle: 2e-5 + 2e-4 relative is the bar for one
// scan, and these models are two or three layers deep.
void expect_logits(const std::vector<float>& got, const std::vector<double>& want,
                   const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double bar = 2e-5 + 2e-4 * std::abs(want[i]);
    ASSERT_TRUE(std::abs(static_cast<double>(got[i]) - want[i]) <= bar)
        << what << ", id " << i << ": expected " << want[i] << ", got " << got[i];
  }
}

class Golden : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const fs::path folder = fs::path(ADDER_SOURCE_DIR) / "tests/golden" / GetParam().folder;
    expected_ = nlohmann::json::parse(std::ifstream(folder / "expected.json"));
    prompt_ = expected_["prompt"].get<std::vector<int32_t>>();
    session_ = std::make_unique<Session>(folder.string(), GetParam().backend);
  }

  nlohmann::json expected_;
  std::vector<int32_t> prompt_;
  std::unique_ptr<Session> session_;
};

TEST_P(Golden, LogitsEqualTheOracle) {
  const auto logits = session_->feed(prompt_);
  for (const auto& [row, want] : expected_["logits_rows"].items()) {
    expect_logits(logits[std::stoul(row)], want.get<std::vector<double>>(), "row " + row);
  }
  expect_logits(logits.back(), expected_["logits_last"].get<std::vector<double>>(), "last row");
}

TEST_P(Golden, GreedyTokensEqualTheOracle) {
  const auto greedy = expected_["greedy"].get<std::vector<int32_t>>();
  auto logits = session_->feed(prompt_).back();
  for (size_t i = 0; i < greedy.size(); ++i) {
    const auto limit = logits.begin() + session_->model.config().vocab_size;
    const auto token =
        static_cast<int32_t>(std::max_element(logits.begin(), limit) - logits.begin());
    ASSERT_EQ(token, greedy[i]) << "token " << i;
    if (i + 1 < greedy.size()) logits = session_->feed(std::span(&token, 1)).back();
  }
  expect_logits(logits, expected_["logits_greedy_last"].get<std::vector<double>>(),
                "last greedy row");
}

TEST_P(Golden, StatesEqualTheOracle) {
  session_->feed(prompt_);
  const ModelConfig& c = session_->model.config();
  const int32_t slot = session_->state.slot();
  const auto read = [&](const Tensor& t) {
    std::vector<float> values(static_cast<size_t>(t.size()));
    session_->backend->read(t, std::as_writable_bytes(std::span(values)));
    return values;
  };
  const std::vector<float> conv = read(session_->pool.conv_state(0).select(slot));
  const std::vector<float> ssm = read(session_->pool.ssm_state(0).select(slot));
  const auto want_conv = expected_["conv_state_l0"]["data"].get<std::vector<double>>();
  const auto want_ssm = expected_["ssm_state_l0"]["data"].get<std::vector<double>>();
  ASSERT_EQ(conv.size(), want_conv.size());
  ASSERT_EQ(ssm.size(), want_ssm.size());
  // The oracle's layouts are the reference's: (channels, d_conv - 1) and, for Mamba-1,
  // (d_inner, d_state); ours are transposed. The file keeps 5 or 6 digits.
  const auto expect_near = [](float got, double want, size_t i) {
    ASSERT_TRUE(std::abs(static_cast<double>(got) - want) <= 2e-5 + 2e-4 * std::abs(want))
        << "element " << i << ": expected " << want << ", got " << got;
  };
  const auto width = static_cast<size_t>(c.d_conv - 1),
             channels = static_cast<size_t>(c.conv_channels());
  for (size_t ch = 0; ch < channels; ++ch) {
    for (size_t k = 0; k < width; ++k) {
      expect_near(conv[k * channels + ch], want_conv[ch * width + k], ch * width + k);
    }
  }
  const auto d_state = static_cast<size_t>(c.d_state), d_inner = static_cast<size_t>(c.d_inner);
  for (size_t i = 0; i < ssm.size(); ++i) {
    const size_t from = c.mixer == MixerKind::kMamba1 ? (i % d_state) * d_inner + i / d_state : i;
    expect_near(ssm[from], want_ssm[i], i);
  }
}

INSTANTIATE_TEST_SUITE_P(Dialects, Golden, ::testing::ValuesIn(cases()), case_name);

TEST(GoldenPairs, TwoSpellingsOfTheSameWeightsGiveTheSameBits) {
  const std::string root = ADDER_SOURCE_DIR "/tests/golden/";
  const std::pair<const char*, const char*> pairs[] = {
      {"mamba1_state_spaces_bin", "mamba1_hf"},
      {"mamba1_old_port_bin", "mamba1_old_port_model_prefix_bin"},
      {"mamba2_state_spaces_bin", "mamba2_hf"}};
  for (const auto& [a, b] : pairs) {
    const std::vector<int32_t> prompt = {5, 17, 2, 40, 3};
    const auto first = Session(root + a, "ref").feed(prompt),
               second = Session(root + b, "ref").feed(prompt);
    EXPECT_EQ(first, second) << a << " and " << b;
  }
}

}  // namespace
}  // namespace adder
