// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace adder {

struct EncodeOptions {
  // true: the spelling of control tokens ("<|endoftext|>", "[INST]") in the text becomes the token.
  // false: such text is ordinary text. Templates use true, user text false.
  bool parse_special = false;
  // Puts the model's beginning-of-sequence token first, where the tokenizer's files ask for one.
  bool add_bos = false;
};

struct TextPart {
  std::string_view text;
  bool parse_special = false;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of UTF-8 text. Bytes that are not UTF-8 are kept where the vocabulary can express them
  // (byte-level BPE, byte fallback), so that decode(encode(x)) == x for the tokenizers without a
  // lossy normaliser. Time is linear in the text for practical inputs.
  virtual std::vector<int32_t> encode(std::string_view text,
                                      const EncodeOptions& options) const = 0;
  std::vector<int32_t> encode(std::string_view text) const { return encode(text, {}); }
  // Ids of parts that stand one after another, e.g. a chat: the spelling of a control token counts
  // only where it lies in parts that ask for it. Otherwise the parts are one text.
  // The default encodes each part by itself.
  virtual std::vector<int32_t> encode_parts(std::span<const TextPart> parts, bool add_bos) const;

  // Text of the ids. Control tokens are left out when skip_special is set.
  // Throws Error(kBadInput) for an id outside [0, size()).
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special = false) const = 0;

  // The bytes one token stands for in the middle of a text; possibly not whole UTF-8 characters.
  virtual std::string_view token_bytes(int32_t id) const = 0;
  virtual bool is_special(int32_t id) const = 0;
  // True when decode() drops a blank in front of the first token (SentencePiece's dummy prefix).
  virtual bool strips_leading_space() const { return false; }
  // True when encode() lets text that follows a control token begin with a blank of its own, as it
  // does at the start (SentencePiece's dummy prefix again). Templates then leave that blank out.
  virtual bool adds_blank_after_special() const { return false; }

  virtual int32_t size() const = 0;  // ids are 0 .. size() - 1
  virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  virtual std::string_view kind() const = 0;  // "byte-level BPE", "SentencePiece BPE", "bytes"

  std::optional<int32_t> bos_id() const { return bos_id_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }
  // Whether the tokenizer's files ask for bos_id() in front of a text; what add_bos obeys.
  bool wants_bos() const { return wants_bos_ && bos_id_.has_value(); }

  // What tokenizer_config.json says overrides what the tokenizer itself knows.
  void set_bos(std::optional<int32_t> id) { bos_id_ = id; }
  void set_eos(std::optional<int32_t> id) { eos_id_ = id; }
  void set_wants_bos(bool wanted) { wants_bos_ = wanted; }

 protected:
  std::optional<int32_t> bos_id_, eos_id_;
  bool wants_bos_ = false;
};

// Looks in `directory` for tokenizer.json, then tokenizer.model, tokenizer.model.v3 and the like
// (SentencePiece). Returns null when there is none. Reads tokenizer_config.json and
// special_tokens_map.json for bos and eos when present.
// Throws Error(kBadInput) naming the file when one is present but malformed or of an unknown kind.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& directory);

// The file that load_tokenizer() would take; nothing when there is none.
std::optional<std::string> find_tokenizer_file(const std::string& directory);

// From one file, by its content: tokenizer.json or a SentencePiece model.
std::unique_ptr<Tokenizer> load_tokenizer_file(const std::string& file);

// 256 ids, one per byte; id 0 is also the end of text.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

// Turns a stream of ids into text that is only ever handed out in whole UTF-8 characters. Bytes
// that can never become a character come out as U+FFFD, once per maximal invalid part.
// No allocation per token once the buffers have grown to the longest token.
class StreamDecoder {
 public:
  // `at_start`: the ids are a text from its start on, as decode() takes them. Pass false where they
  // continue a prompt, so that the blank in front of the first one is kept.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool at_start = true)
      : tokenizer_(&tokenizer), first_(at_start) {}

  // Text that is complete after this id; valid until the next call. Special tokens give nothing.
  std::string_view push(int32_t id);
  // What is left at the end of the stream: an incomplete character as U+FFFD.
  std::string_view finish();

 private:
  void append_complete(bool at_end);

  const Tokenizer* tokenizer_;
  std::string pending_;  // an incomplete character, at most 3 bytes, plus the newest token
  std::string out_;
  bool first_;
};

}  // namespace adder
