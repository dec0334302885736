// After precompile() an engine in the next process compiles nothing: its programs have the texts
// that are there.
#include "engine/precompile.h"

#include <set>

#include "backends/registry.h"
#include "testing/forwarding_executor.h"
#include "xla/xla_engine.h"

namespace adder::testing {
namespace {

using Texts = std::shared_ptr<std::set<std::string>>;

// The interpreter with something like the cache on the disk: the texts that were compiled before.
class KeepingExecutor final : public ForwardingExecutor {
 public:
  explicit KeepingExecutor(Texts texts) : texts_(std::move(texts)) {}
  std::unique_ptr<xla::Executable> compile(const xla::Program& program) override {
    ++(texts_->insert(xla::stablehlo_text(program)).second ? compiled_ : from_cache_);
    return ForwardingExecutor::compile(program);
  }
  int64_t compiled() const override { return compiled_; }
  int64_t from_cache() const override { return from_cache_; }
  int64_t on_disk() const override { return compiled_ + from_cache_; }

 private:
  Texts texts_;
  int64_t compiled_ = 0, from_cache_ = 0;
};

std::unique_ptr<Engine> keeping_engine(const Texts& texts, int32_t slots) {
  const auto make = [texts] { return std::make_unique<KeepingExecutor>(texts); };
  return golden_engine("mamba2_hf", on_executor(make, slots, 16));
}

int64_t compiled_for(Engine& engine, int64_t length, int32_t batch, float temperature,
                     int64_t tokens = 5) {
  const ProgramCounts before = program_counts(engine.backend()).value();
  std::vector<GenerationRequest> requests(static_cast<size_t>(batch));
  for (GenerationRequest& r : requests) {
    r.prompt = random_ids(3, length, static_cast<int32_t>(engine.vocab_limit()));
    r.max_tokens = tokens;
    r.ignore_eos = true;
    r.sampling.temperature = temperature;
  }
  generate(engine, requests);
  return program_counts(engine.backend()).value().compiled - before.compiled;
}

TEST(Precompile, TheNextProcessCompilesNothing) {
  const auto texts = std::make_shared<std::set<std::string>>();
  PrecompileOptions options;
  options.lengths = {3, 20, 40};
  const auto parts = precompile(*keeping_engine(texts, 1), options);
  ASSERT_EQ(parts.size(), 5u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(parts[i].part, PrecompiledPart::kPrompt);
    EXPECT_EQ(parts[i].length, options.lengths[i]);
    EXPECT_GT(parts[i].compiled, 0);
    EXPECT_EQ(parts[i].on_disk, parts[i].compiled + parts[i].from_cache);
  }
  EXPECT_EQ(parts[3].part, PrecompiledPart::kStep);
  EXPECT_EQ(parts[4].part, PrecompiledPart::kLoop);
  for (const int64_t length : options.lengths) {
    const auto engine = keeping_engine(texts, 1);
    EXPECT_EQ(compiled_for(*engine, length, 1, 0.6f), 0) << length;  // what `adder run` draws with
    EXPECT_EQ(compiled_for(*engine, length, 1, 0.6f), 0) << length << ", once more";
  }
  EXPECT_GT(compiled_for(*keeping_engine(texts, 1), 40, 1, 0), 0) << "greedy";
  EXPECT_EQ(compiled_for(*keeping_engine(texts, 1), 100, 1, 0.6f), 0) << "the same blocks again";
  EXPECT_GT(compiled_for(*keeping_engine(texts, 2), 40, 1, 0.6f), 0) << "other slots";
}

TEST(Precompile, PromptsAtOnceCompileNothingEither) {
  const auto texts = std::make_shared<std::set<std::string>>();
  PrecompileOptions options;
  options.lengths = {40, 20};  // the longer one first: what it leaves behind is nobody's
  options.batches = {1, 3};
  precompile(*keeping_engine(texts, 3), options);
  for (const int64_t length : options.lengths) {
    const auto engine = keeping_engine(texts, 3);
    // So many tokens that no answer ends before the last prompt is there.
    EXPECT_EQ(compiled_for(*engine, length, 3, 0.6f, 12), 0) << length;
    EXPECT_EQ(compiled_for(*engine, length, 3, 0.6f, 12), 0) << length << ", once more";
    EXPECT_EQ(compiled_for(*keeping_engine(texts, 3), length, 1, 0.6f), 0) << length << ", alone";
  }
}

TEST(Precompile, OnceMoreEverythingIsThere) {
  const auto texts = std::make_shared<std::set<std::string>>();
  PrecompileOptions options;
  options.lengths = {20};
  options.batches = {1, 3};
  options.sampling.repeat_penalty = 1.1f;
  const auto first = precompile(*keeping_engine(texts, 3), options);
  const auto again = precompile(*keeping_engine(texts, 3), options);
  ASSERT_EQ(first.size(), 6u);
  ASSERT_EQ(again.size(), first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(again[i].compiled, 0) << i;
    EXPECT_EQ(again[i].from_cache, first[i].compiled + first[i].from_cache) << i;
  }
}

TEST(Precompile, SaysWhatItCannotDo) {
  expect_error([] { check_precompiles("cpu"); }, ErrorCode::kUnsupported, "got 'cpu'");
  const auto texts = std::make_shared<std::set<std::string>>();
  const auto engine = keeping_engine(texts, 1);
  PrecompileOptions options;
  expect_error([&] { precompile(*engine, options); }, ErrorCode::kBadInput, "lengths: ");
  options.lengths = {0};
  expect_error([&] { precompile(*engine, options); }, ErrorCode::kBadInput, "lengths: ");
  options.lengths = {1};
  options.batches = {2};
  expect_error([&] { precompile(*engine, options); }, ErrorCode::kBadInput, "batch: ");
}

}  // namespace
}  // namespace adder::testing
