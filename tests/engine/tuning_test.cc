// The stored tuning: read, replaced, ignored when broken, and obeyed by the engine.
#include "engine/tuning.h"

#include <cstdlib>

#include "core/error.h"
#include "engine/engine_testing.h"

namespace adder::testing {
namespace {

// A cache folder of the test's own for as long as it lives.
class Tuned : public ::testing::Test {
 protected:
  Tuned() {
    if (const char* old = std::getenv("XDG_CACHE_HOME")) old_ = old;
    setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
  }
  ~Tuned() override {
    if (old_) {
      setenv("XDG_CACHE_HOME", old_->c_str(), 1);
    } else {
      unsetenv("XDG_CACHE_HOME");
    }
  }
  void write_cache(const std::string& text) {
    std::filesystem::create_directories(folder_.path("adder"));
    folder_.write("adder/tune.json", text);
  }
  static std::unique_ptr<Engine> engine() {
    EngineOptions options;
    options.block = 0;
    return golden_engine("mamba1_hf", options);
  }
  static std::string key_of(const Engine& engine) {
    return tuning_key(engine.config(), engine.backend().description());
  }

  TempDir folder_;
  std::optional<std::string> old_;
};

TEST_F(Tuned, RoundTripKeepsOtherEntries) {
  const std::string path = tuning_path();
  EXPECT_EQ(path, folder_.path("adder/tune.json"));
  EXPECT_FALSE(find_tuning(path, "a").tuning.has_value());
  EXPECT_EQ(find_tuning(path, "a").problem, "");
  store_tuning(path, "a", {128});
  store_tuning(path, "b \"quoted\"", {512});
  store_tuning(path, "a", {64});
  EXPECT_EQ(find_tuning(path, "a").tuning.value().block, 64);
  EXPECT_EQ(find_tuning(path, "b \"quoted\"").tuning.value().block, 512);
  EXPECT_FALSE(find_tuning(path, "c").tuning.has_value());
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path("adder"))) {
    (void)entry;
    ++files;
  }
  EXPECT_EQ(files, 1u);  // no temporary file is left
}

TEST_F(Tuned, TheEngineTakesItForItsOwnShapeOnly) {
  EXPECT_EQ(engine()->block(), kDefaultBlock);
  const std::string key = key_of(*engine());
  store_tuning(tuning_path(), key + "x", {64});
  EXPECT_EQ(engine()->block(), kDefaultBlock);
  store_tuning(tuning_path(), key, {128});
  EXPECT_EQ(engine()->block(), 128);
  EXPECT_EQ(engine()->tuning_problem(), "");
  EXPECT_EQ(golden_engine("mamba1_hf")->block(), kDefaultBlock);  // asked for
  EXPECT_NE(key_of(*golden_engine("mamba2_hf")), key);
}

TEST_F(Tuned, ABrokenFileIsIgnoredTellsWhyAndIsReplaced) {
  const std::string key = key_of(*engine());
  const auto entry = [&](const std::string& value) {
    return R"({"version": 1, "entries": {")" + key + R"(": )" + value + "}}";
  };
  const std::pair<std::string, std::string> broken[] = {
      {"", "tune.json"},
      {"{", "tune.json"},
      {"[]", "expected an object"},
      {R"({"version": 2, "entries": {}})", "version"},
      {R"({"version": 1, "entries": 3})", "entries"},
      {entry("7"), key},
      {entry("{}"), "block"},
      {entry(R"({"block": "64"})"), "block"},
      {entry(R"({"block": 0})"), "block"},
      {entry(R"({"block": -64})"), "block"},
      {entry(R"({"block": 65})"), "multiple of 64"},
      {entry(R"({"block": 1048576})"), "block"}};
  for (const auto& [text, word] : broken) {
    SCOPED_TRACE(text);
    write_cache(text);
    const auto e = engine();
    EXPECT_EQ(e->block(), kDefaultBlock);
    EXPECT_NE(e->tuning_problem().find(word), std::string::npos) << e->tuning_problem();
    store_tuning(tuning_path(), key, {64});
    EXPECT_EQ(engine()->block(), 64);
  }
}

TEST_F(Tuned, AnyBlockOfTheTunerGivesTheSameBits) {
  EngineOptions options;
  options.block = 1024;
  for (const std::string& name : golden_families()) {
    const auto e = golden_engine(name, options);
    const auto prompt = random_ids(5, 300);
    std::vector<float> want;
    for (const int64_t block : {1024, 64, 128, 256, 512}) {
      e->set_block(block);
      Conversation c;
      GenerationRequest request = greedy(prompt, 0);
      request.conversation = &c;
      generate(*e, request);
      if (want.empty()) want = c.logits;
      EXPECT_EQ(c.logits, want) << name << ", block " << block;
    }
    EXPECT_THROW(e->set_block(1025), Error);
    EXPECT_THROW(e->set_block(0), Error);
  }
}

}  // namespace
}  // namespace adder::testing
