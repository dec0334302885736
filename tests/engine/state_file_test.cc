#include "engine/state_file.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <set>

#include "engine/engine_testing.h"
#include "testing/compare.h"

namespace adder {
namespace {

namespace fs = std::filesystem;
using namespace adder::testing;

std::string resealed(std::string image) {
  image.resize(image.size() - 32);
  unsigned char digest[32];
  EVP_Digest(image.data(), image.size(), digest, nullptr, EVP_sha256(), nullptr);
  return image.append(reinterpret_cast<const char*>(digest), 32);
}

// The image with another header of any length, the digest made right again.
std::string with_header(const std::string& image, const std::string& header) {
  uint32_t length = 0;
  std::memcpy(&length, image.data() + 12, 4);
  std::string out = image.substr(0, 12);
  put(out, header.size(), 4);
  return resealed(out + header + image.substr(16 + length));
}

nlohmann::json header_of(const std::string& image) {
  uint32_t length = 0;
  std::memcpy(&length, image.data() + 12, 4);
  return nlohmann::json::parse(image.substr(16, length));
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

class StateFile : public ::testing::TestWithParam<std::string> {
 protected:
  Conversation prefilled(const std::vector<int32_t>& prompt, int64_t answer = 3) {
    Conversation c;
    GenerationRequest request = greedy(prompt, answer);
    request.conversation = &c;
    generate(*engine_, request);
    return c;
  }
  std::string image(const Conversation& c) {
    save_conversation(*engine_, c, dir_.path("image"));
    std::string bytes = read_file(dir_.path("image"));
    fs::remove(dir_.path("image"));
    return bytes;
  }
  // One clear line, and no slot is lost.
  void expect_refused(const std::string& bytes, std::string_view part) {
    const int32_t free = engine_->states().free_slots();
    expect_bad_input([&] { parse_conversation(*engine_, as_bytes(bytes), "saved.state"); }, part);
    EXPECT_EQ(engine_->states().free_slots(), free);
  }

  TempDir dir_;
  std::unique_ptr<Engine> engine_ = golden_engine(GetParam(), {.slots = 3});
};
INSTANTIATE_TEST_SUITE_P(Family, StateFile, ::testing::ValuesIn(golden_families()),
                         [](const auto& test) { return test.param; });

TEST_P(StateFile, LoadedInANewEngineItContinuesAsIfUninterrupted) {
  const auto prompt = random_ids(1, 90);
  GenerationRequest request = greedy(prompt, 20);
  request.sampling.temperature = 1.1f;
  request.sampling.repeat_penalty = 1.2f;
  request.sampling.seed = 5;
  const auto want = generate(*engine_, request);
  Conversation c;
  request.conversation = &c;
  request.max_tokens = 8;
  auto tokens = generate(*engine_, request).tokens;
  const std::string file = dir_.path("saved.state");
  save_conversation(*engine_, c, file);
  EXPECT_EQ(names_in(dir_.path()), std::set<std::string>{"saved.state"});

  const auto other = golden_engine(GetParam(), {.threads = 1});
  poison_free_slots(*other);
  Conversation loaded = load_conversation(*other, file);
  EXPECT_EQ(other->states().free_slots(), 0);
  EXPECT_EQ(loaded.length, c.length);
  EXPECT_EQ(loaded.token_hash, c.token_hash);
  EXPECT_EQ(loaded.recent, c.recent);
  EXPECT_TRUE(same_bits(loaded.logits, c.logits));
  EXPECT_TRUE(same_bits(state_values(*other, loaded.state), state_values(*engine_, c.state)));
  request.conversation = &loaded;
  request.prompt.clear();
  request.max_tokens = 12;
  const auto rest = generate(*other, request);
  EXPECT_EQ(rest.cached_tokens, 98);
  EXPECT_EQ(rest.prompt_tokens, 98);
  tokens.insert(tokens.end(), rest.tokens.begin(), rest.tokens.end());
  EXPECT_EQ(tokens, want.tokens);
}

TEST_P(StateFile, ASuffixIsAllThatIsProcessed) {
  const auto prompt = random_ids(2, 128);  // a cut at a multiple of 64 keeps the bits
  auto whole = prompt;
  for (const int32_t id : random_ids(3, 30)) whole.push_back(id);
  Conversation want;
  GenerationRequest request = greedy(whole, 10);
  request.conversation = &want;
  const auto uninterrupted = generate(*engine_, request);
  Conversation c = prefilled(prompt, 0);
  save_conversation(*engine_, c, dir_.path("saved.state"));
  c = load_conversation(*engine_, dir_.path("saved.state"));
  request.prompt.assign(whole.begin() + 128, whole.end());
  request.conversation = &c;
  int64_t fed = 0;
  request.on_prefill = [&](int64_t done) { fed = done; };
  const auto result = generate(*engine_, request);
  EXPECT_EQ(fed, 30);
  EXPECT_EQ(result.cached_tokens, 128);
  EXPECT_EQ(result.prompt_tokens, 158);
  EXPECT_EQ(result.tokens, uninterrupted.tokens);
  EXPECT_TRUE(same_bits(state_values(*engine_, c.state), state_values(*engine_, want.state)));
}

TEST_P(StateFile, CancelledPromptCanBeSavedAndNeedsText) {
  std::atomic<bool> cancel = false;
  Conversation c;
  GenerationRequest request = greedy(random_ids(4, 300), 2);
  request.conversation = &c;
  request.cancel = &cancel;
  request.on_prefill = [&](int64_t) { cancel = true; };
  generate(*engine_, request);
  ASSERT_TRUE(c.logits.empty());
  save_conversation(*engine_, c, dir_.path("saved.state"));
  Conversation loaded = load_conversation(*engine_, dir_.path("saved.state"));
  EXPECT_EQ(loaded.length, 256);
  request = greedy({}, 2);
  request.conversation = &loaded;
  expect_bad_input([&] { generate(*engine_, request); }, "prompt: expected at least 1 token");
}

TEST_P(StateFile, NothingProcessedIsNothingToSave) {
  expect_bad_input([&] { save_conversation(*engine_, {}, dir_.path("saved.state")); },
                   "nothing has been processed");
  EXPECT_TRUE(names_in(dir_.path()).empty());
}

TEST_P(StateFile, CutAtAnyLengthIsRefused) {
  const std::string whole = image(prefilled(random_ids(5, 20)));
  const size_t header = header_of(whole).dump().size();
  std::set<size_t> lengths = {whole.size() - 1, whole.size() - 31, whole.size() - 32,
                              whole.size() - 33, whole.size() - 64};
  for (size_t n = 0; n <= 16 + header + 8; ++n) lengths.insert(n);
  for (size_t n = 100; n < whole.size(); n += whole.size() / 37) lengths.insert(n);
  for (const size_t n : lengths) {
    SCOPED_TRACE(n);
    expect_refused(whole.substr(0, n), "saved.state");
  }
  expect_refused(whole + '\0', "truncated or damaged: expected");
  expect_refused("", "not a state file");
}

TEST_P(StateFile, AFlippedByteAnywhereIsRefused) {
  std::string bytes = image(prefilled(random_ids(5, 20)));
  const size_t dense = 16 + header_of(bytes).dump().size() + 64;
  for (size_t at = 0; at < bytes.size(); at += at < dense ? 1 : bytes.size() / 61) {
    SCOPED_TRACE(at);
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    expect_refused(bytes, "saved.state");
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
  }
  for (size_t back = 1; back <= 32; ++back) {
    bytes[bytes.size() - back] = static_cast<char>(bytes[bytes.size() - back] ^ 1);
    expect_refused(bytes, "SHA-256");
    bytes[bytes.size() - back] = static_cast<char>(bytes[bytes.size() - back] ^ 1);
  }
  EXPECT_EQ(parse_conversation(*engine_, as_bytes(bytes), "saved.state").length, 23);
}

// Every field made wrong with the digest made right: what a careless tool would write.
TEST_P(StateFile, WrongFieldsAreNamed) {
  const std::string whole = image(prefilled(random_ids(6, 20)));
  const nlohmann::json header = header_of(whole);
  const auto changed = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json other = header;
    other[key] = value;
    return with_header(whole, other.dump());
  };
  ASSERT_EQ(with_header(whole, header.dump()), whole);
  expect_refused(changed("model", "abc\n\x1b[31m\"def"), "field 'model': expected");
  expect_refused(changed("model", nullptr), "got nothing");
  expect_refused(changed("model", 3), "saved.state: field 'model'");
  for (const char* key : {"tokens", "recent", "logits", "state_bytes"}) {
    SCOPED_TRACE(key);
    for (const nlohmann::json& value :
         std::vector<nlohmann::json>{-1, INT64_MAX, INT64_MIN, 1e30, "9", nullptr, 1.5}) {
      expect_refused(changed(key, value), fmt::format("field '{}'", key));
    }
  }
  expect_refused(changed("recent", 0), "truncated or damaged: expected");
  expect_refused(changed("logits", 0), "truncated or damaged: expected");
  expect_refused(changed("state_bytes", int64_t{1} << 50), "truncated or damaged: expected");
  // Sizes that add up, but are not this model's.
  nlohmann::json shifted = header;
  shifted["recent"] = header["recent"].get<int>() + 1;
  shifted["state_bytes"] = header["state_bytes"].get<int64_t>() - 4;
  expect_refused(with_header(whole, shifted.dump()), "expected a state of");
  shifted = header;
  shifted["recent"] = header["recent"].get<int>() + 2;
  shifted["logits"] = header["logits"].get<int64_t>() - 2;
  expect_refused(with_header(whole, shifted.dump()), "logits, got");
  for (const char* hash : {"", "12", "zzzzzzzzzzzzzzzz", "0123456789abcdef0", "-123456789abcdef",
                           "0x23456789abcdef", "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n"}) {
    expect_refused(changed("token_hash", hash), "token_hash");
  }
  expect_refused(with_header(whole, "[]"), "saved.state");
  expect_refused(with_header(whole, "{"), "saved.state");
  expect_refused(with_header(whole, ""), "saved.state");
  std::string version = whole;
  version[8] = 2;
  expect_refused(resealed(version), "field 'version': expected 1, got 2");
  std::string long_header = whole;
  long_header[14] = '\x7f';
  expect_refused(resealed(long_header), "the header says");
  std::string bad_id = whole;
  bad_id[16 + header.dump().size() + 3] = '\x7f';  // the first of `recent`
  expect_refused(resealed(bad_id), "tokens: expected ids from 0 to");
}

TEST_P(StateFile, AnotherModelOfTheSameShapeIsRefused) {
  TempDir other;
  for (const auto& entry : fs::directory_iterator(golden_path(GetParam()))) {
    const std::string name = entry.path().filename();
    other.write(name, read_file(entry.path()));
  }
  const std::string saved = image(prefilled(random_ids(7, 20)));
  const auto same = Engine::load(other.path(), {.threads = 1});
  EXPECT_EQ(parse_conversation(*same, as_bytes(saved), "saved.state").length, 23);
  nlohmann::json config = nlohmann::json::parse(read_file(other.path("config.json")));
  config["layer_norm_epsilon"] = 1e-3;  // the same weights, but other results
  other.write("config.json", config.dump());
  const auto changed = Engine::load(other.path(), {.threads = 1});
  expect_bad_input([&] { parse_conversation(*changed, as_bytes(saved), "saved.state"); },
                   "the state was saved with another model");
  EXPECT_EQ(changed->states().free_slots(), 1);
}

TEST(StateFileModel, OtherWeightsInTheSameShapesAreRefused) {
  TempDir dir;
  const std::string from = golden_path("mamba1_hf");
  std::string weights = read_file(from + "/model.safetensors");
  dir.write("config.json", read_file(from + "/config.json"));
  const auto engine = golden_engine("mamba1_hf", {.slots = 2});
  Conversation c;
  GenerationRequest request = greedy({1, 2, 3}, 1);
  request.conversation = &c;
  generate(*engine, request);
  save_conversation(*engine, c, dir.path("saved.state"));
  // The second half of all data is moved by a rounding step, as a fine-tune would.
  for (size_t at = weights.size() / 2 / 4 * 4; at + 4 <= weights.size(); at += 4) {
    weights[at] = static_cast<char>(weights[at] ^ 1);
  }
  dir.write("model.safetensors", weights);
  const auto tuned = Engine::load(dir.path(), {.threads = 1});
  expect_bad_input([&] { load_conversation(*tuned, dir.path("saved.state")); },
                   "saved.state: field 'model': expected");
  EXPECT_EQ(tuned->states().free_slots(), 1);
}

TEST_P(StateFile, NoFreeSlotIsReportedAndNothingIsLost) {
  const std::string bytes = image(prefilled(random_ids(8, 5)));
  std::vector<StateHandle> taken;
  while (engine_->states().free_slots() > 0) taken.push_back(engine_->states().acquire());
  expect_refused(bytes, "all 3 slots are taken");
  taken.clear();
  EXPECT_EQ(parse_conversation(*engine_, as_bytes(bytes), "saved.state").length, 8);
}

TEST_P(StateFile, TargetsThatCannotBeWritten) {
  const Conversation c = prefilled(random_ids(9, 5));
  expect_error([&] { save_conversation(*engine_, c, dir_.path("missing/saved.state")); },
               ErrorCode::kIo, "missing/saved.state: cannot write: No such file or directory");
  fs::create_directory(dir_.path("folder"));
  expect_bad_input([&] { save_conversation(*engine_, c, dir_.path("folder")); },
                   "folder: cannot write: expected a new or a regular file");
  expect_bad_input([&] { save_conversation(*engine_, c, "/dev/null"); },
                   "/dev/null: cannot write: expected a new or a regular file");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(names_in(dir_.path()), std::set<std::string>{"folder"});
  EXPECT_TRUE(names_in(dir_.path("folder")).empty());
  const std::string read_only = dir_.path("folder") + "/saved.state";
  ::chmod(dir_.path("folder").c_str(), 0555);
  if (::geteuid() != 0) {  // root may write anywhere
    expect_error([&] { save_conversation(*engine_, c, read_only); }, ErrorCode::kIo,
                 "saved.state: cannot write: Permission denied");
    EXPECT_TRUE(names_in(dir_.path("folder")).empty());
  }
  ::chmod(dir_.path("folder").c_str(), 0755);
}

TEST_P(StateFile, AFullDiskLeavesTheOldFileAlone) {
  const Conversation c = prefilled(random_ids(9, 5));
  const std::string file = dir_.path("saved.state");
  save_conversation(*engine_, c, file);
  const std::string before = read_file(file);
  // A limit on the size of files stands in for a full disk.
  struct rlimit old {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  struct rlimit small = old;
  small.rlim_cur = 1000;
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error([&] { save_conversation(*engine_, c, file); }, ErrorCode::kIo,
               "saved.state: cannot write: File too large");
  ::setrlimit(RLIMIT_FSIZE, &old);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_file(file), before);
  EXPECT_EQ(names_in(dir_.path()), std::set<std::string>{"saved.state"});
}

TEST_P(StateFile, AnOldFileIsReplacedWhole) {
  const std::string file = dir_.write("saved.state", std::string(1 << 20, 'x'));
  save_conversation(*engine_, prefilled(random_ids(9, 5)), file);
  EXPECT_EQ(load_conversation(*engine_, file).length, 8);
  EXPECT_EQ(names_in(dir_.path()), std::set<std::string>{"saved.state"});
  struct stat info {};
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  EXPECT_EQ(info.st_mode & 0777, 0666 & ~mask);
}

TEST_P(StateFile, FilesThatAreNone) {
  expect_error([&] { load_conversation(*engine_, dir_.path("missing")); }, ErrorCode::kIo,
               "missing: cannot open");
  expect_bad_input([&] { load_conversation(*engine_, dir_.path()); }, "got a directory");
  expect_bad_input([&] { load_conversation(*engine_, "/dev/null"); }, "/dev/null: expected a");
  expect_bad_input([&] { load_conversation(*engine_, dir_.write("empty", "")); }, "empty");
  expect_bad_input([&] { load_conversation(*engine_, dir_.write("text", std::string(200, 'a'))); },
                   "text: not a state file");
  EXPECT_EQ(engine_->states().free_slots(), 3);
}

}  // namespace
}  // namespace adder
