// Tokenizers in GGUF metadata: the published vectors, and every kind there and back.
#include "engine/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/io_testing.h"
#include "text/text_testing.h"

namespace adder {
namespace {

using namespace adder::testing;

// A file with nothing but this vocabulary; the image must outlive the result.
GgufFile file_of(const GgufVocabulary& vocabulary, int64_t rows, std::string& image) {
  image.clear();
  GgufWriter writer([&](std::span<const std::byte> bytes) {
    image.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  add_gguf_vocabulary(writer, vocabulary, rows, "model");
  writer.finish();
  return read_gguf(adder::testing::as_bytes(image), "m.gguf");
}

void expect_vectors(const Tokenizer& tokenizer, const std::string& name) {
  const auto vectors = read_vectors(fixture("tokenizers/" + name + "_vectors.inp"),
                                    fixture("tokenizers/" + name + "_vectors.out"));
  ASSERT_EQ(vectors.size(), 46u);
  for (const auto& [text, ids] : vectors) EXPECT_EQ(tokenizer.encode(text), ids) << text;
}

TEST(GgufTokenizer, MatchesFalconsVectorsFromAPublishedFile) {
  ADDER_NEED_FIXTURE("tokenizers/ggml-vocab-falcon.gguf");
  const std::string bytes = read_bytes(fixture("tokenizers/ggml-vocab-falcon.gguf"));
  const GgufFile file = read_gguf(adder::testing::as_bytes(bytes), "falcon.gguf");
  const auto tokenizer = load_gguf_tokenizer(file.metadata);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->size(), 65024);
  EXPECT_EQ(tokenizer->eos_id(), 11);
  EXPECT_TRUE(tokenizer->is_special(11));
  EXPECT_FALSE(tokenizer->wants_bos());
  expect_vectors(*tokenizer, "falcon");
}

TEST(GgufTokenizer, NeoXGoesThereAndBack) {
  ADDER_NEED_FIXTURE("tokenizers/20B_tokenizer.json");
  const std::string path = fixture("tokenizers/20B_tokenizer.json");
  const auto original = load_tokenizer_file(path);
  const GgufVocabulary v = to_gguf_vocabulary(read_bytes(path), *original, path);
  EXPECT_EQ(v.pre, "olmo");  // what llama.cpp's converter calls it
  EXPECT_EQ(v.tokens.size(), 50277u);
  EXPECT_EQ(v.merges.size(), 50009u);
  std::string image;
  const GgufFile file = file_of(v, 50280, image);
  EXPECT_EQ(file.metadata.get_strings("tokenizer.ggml.tokens").size(), 50280u);
  EXPECT_EQ(file.metadata.get_strings("tokenizer.ggml.tokens").back(), "[PAD50279]");
  const auto tokenizer = load_gguf_tokenizer(file.metadata);
  EXPECT_EQ(tokenizer->size(), 50277);  // padding is none of its ids
  EXPECT_EQ(tokenizer->eos_id(), 0);
  EXPECT_FALSE(tokenizer->is_special(50276));
  expect_vectors(*tokenizer, "neox");
  EXPECT_EQ(tokenizer->encode("e\u0301"), original->encode("e\u0301"));
}

TEST(GgufTokenizer, MistralGoesThereAndBack) {
  ADDER_NEED_FIXTURE("tokenizers/mistral_instruct_tokenizer_240323.model.v3");
  const std::string path = fixture("tokenizers/mistral_instruct_tokenizer_240323.model.v3");
  const auto original = load_tokenizer_file(path);
  std::string image;
  const GgufFile file =
      file_of(to_gguf_vocabulary(read_bytes(path), *original, path), 32768, image);
  EXPECT_EQ(file.metadata.get_string("tokenizer.ggml.model"), "llama");
  const auto tokenizer = load_gguf_tokenizer(file.metadata);
  EXPECT_EQ(tokenizer->size(), 32768);
  EXPECT_EQ(tokenizer->kind(), "SentencePiece BPE");
  EXPECT_EQ(tokenizer->bos_id(), original->bos_id());
  EXPECT_EQ(tokenizer->eos_id(), original->eos_id());
  EXPECT_EQ(tokenizer->wants_bos(), original->wants_bos());
  std::mt19937 rng(3);
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_utf8(rng, rng() % 50);
    EXPECT_EQ(tokenizer->encode(text), original->encode(text)) << text;
    EXPECT_EQ(tokenizer->decode(original->encode(text)), original->decode(original->encode(text)));
  }
  const std::string chat = "[INST] x[/INST]";
  EXPECT_EQ(tokenizer->encode(chat, {.parse_special = true, .add_bos = true}),
            original->encode(chat, {.parse_special = true, .add_bos = true}));
}

// The golden tokenizers of tests/golden/tokenizers, against their recorded ids.
TEST(GgufTokenizer, EveryByteLevelGoldenGoesThereAndBack) {
  const std::map<std::string, std::string> pres = {
      {"gpt2", "olmo"}, {"llama3", "llama-bpe"}, {"falcon", "falcon"}};
  for (const auto& [name, pre] : pres) {
    const std::string path =
        std::string(ADDER_SOURCE_DIR "/tests/golden/tokenizers/") + name + "/tokenizer.json";
    const auto original = load_tokenizer_file(path);
    const GgufVocabulary v = to_gguf_vocabulary(read_bytes(path), *original, path);
    EXPECT_EQ(v.pre, pre);
    std::string image;
    const GgufFile file = file_of(v, 1024, image);
    const auto tokenizer = load_gguf_tokenizer(file.metadata);
    EXPECT_EQ(tokenizer->size(), original->size());
    EXPECT_EQ(tokenizer->wants_bos(), original->wants_bos()) << name;
    EXPECT_EQ(tokenizer->bos_id(), original->bos_id()) << name;
    std::mt19937 rng(4);
    for (int i = 0; i < 300; ++i) {
      const std::string text = random_utf8(rng, rng() % 40);
      EXPECT_EQ(tokenizer->encode(text), original->encode(text)) << name << ": " << text;
    }
  }
}

TEST(GgufTokenizer, BytesBecomeAVocabularyOfTheirOwn) {
  std::string image;
  const GgufFile file = file_of(gguf_byte_vocabulary(), 256, image);
  const auto tokenizer = load_gguf_tokenizer(file.metadata);
  const auto bytes = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->size(), 256);
  EXPECT_EQ(tokenizer->eos_id(), 0);
  const std::string text = "Hello, na\u00efve \xff world\n\t";
  EXPECT_EQ(tokenizer->encode(text), bytes->encode(text));
  EXPECT_EQ(tokenizer->decode(bytes->encode(text)), text);
}

TEST(GgufTokenizer, GuessesForFilesOfBeforeThePreKey) {
  GgufVocabulary v = gguf_byte_vocabulary();
  v.pre.clear();
  v.tokens[0] = "<|endoftext|>";
  v.tokens[1] = "<|padding|>";
  // GPT-NeoX brings NFC with it.
  const auto neox = nlohmann::json::parse(gguf_tokenizer_file(v, "m"));
  EXPECT_EQ(neox["normalizer"]["type"], "NFC");
  v.tokens[1] = std::string("not NeoX");
  const auto gpt2 = nlohmann::json::parse(gguf_tokenizer_file(v, "m"));
  EXPECT_TRUE(gpt2["normalizer"].is_null());
}

TEST(GgufTokenizer, RefusesWhatItDoesNotKnowByName) {
  const auto refused = [](const std::function<void(GgufVocabulary&)>& spoil, ErrorCode code,
                          std::string_view part) {
    GgufVocabulary v = gguf_byte_vocabulary();
    spoil(v);
    expect_error([&] { make_gguf_tokenizer(v, "m.gguf"); }, code, part);
  };
  refused([](auto& v) { v.model = std::string("rwkv"); }, ErrorCode::kUnsupported,
          "'tokenizer.ggml.model': expected gpt2 or llama, got 'rwkv'");
  refused([](auto& v) { v.pre = std::string("tekken"); }, ErrorCode::kUnsupported,
          "'tokenizer.ggml.pre': expected one of gpt-2, olmo");
  refused([](auto& v) { v.types.pop_back(); }, ErrorCode::kBadInput,
          "'tokenizer.ggml.token_type': expected 256 elements, one per token, got 255");
  refused([](auto& v) { v.types[7] = 9; }, ErrorCode::kBadInput,
          "'tokenizer.ggml.token_type': element 7: expected 1 to 6, got 9");
  refused([](auto& v) { v.tokens[7] = std::string(1, '\xff'); }, ErrorCode::kBadInput,
          "element 7: expected UTF-8");
  refused([](auto& v) { v.tokens[7] = v.tokens[6]; }, ErrorCode::kBadInput, "occurs twice");
  refused([](auto& v) { v.merges = {"nothing known"}; }, ErrorCode::kBadInput, "m.gguf");
  refused([](auto& v) { v.model = "llama"; }, ErrorCode::kBadInput,
          "'tokenizer.ggml.scores': expected scores, got none");
  std::string image;
  expect_bad_input([&] { file_of(gguf_byte_vocabulary(), 255, image); },
                   "the tokenizer has 256 ids, but the embedding has 255 rows");
}

TEST(GgufTokenizer, ChatTemplateComesFromTheMetadata) {
  std::string image;
  GgufWriter writer([&](std::span<const std::byte> bytes) {
    image.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  writer.add_string("tokenizer.chat_template", "{{ '<|im_start|>' }}");
  writer.finish();
  const GgufFile file = read_gguf(adder::testing::as_bytes(image), "m.gguf");
  EXPECT_EQ(gguf_chat_template(file.metadata), ChatTemplate::kChatML);
  EXPECT_EQ(load_gguf_tokenizer(file.metadata), nullptr);
}

}  // namespace
}  // namespace adder
