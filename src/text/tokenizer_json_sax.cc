#include "text/tokenizer_json_sax.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "core/error.h"

namespace adder {
namespace {

using Json = nlohmann::json;

constexpr size_t kDeepest = 64;
constexpr size_t kMostValues = 1'000'000;  // of the tree; 1000 added tokens make about 8000
constexpr int64_t kIdLimit = int64_t{1} << 22;

class Reader : public nlohmann::json_sax<Json> {
 public:
  Reader(TokenizerJsonParts& parts, const std::string& name) : parts_(parts), name_(name) {}

  bool null() override { return value(Json()); }
  bool boolean(bool b) override { return value(Json(b)); }
  bool number_integer(int64_t i) override { return number(i); }
  bool number_unsigned(uint64_t u) override {
    return number(u < uint64_t{1} << 62 ? static_cast<int64_t>(u) : int64_t{1} << 62);
  }
  bool number_float(double d, const std::string&) override { return value(Json(d)); }
  bool binary(Json::binary_t&) override { return false; }
  bool string(std::string& s) override {
    if (where_ == Where::kMerges) return merge_string(s);
    return value(Json(std::move(s)));
  }

  bool start_object(size_t) override {
    if (where_ == Where::kTree && at_model_key("vocab")) {
      where_ = Where::kVocabulary;
      inner_depth_ = 1;
      return true;
    }
    return open(Json::object());
  }
  bool start_array(size_t) override {
    if (where_ == Where::kTree && at_model_key("merges")) {
      where_ = Where::kMerges;
      inner_depth_ = 1;
      return true;
    }
    if (where_ == Where::kTree && at_model_key("vocab")) {  // Unigram; refused by its type later
      where_ = Where::kSkip;
      inner_depth_ = 1;
      return true;
    }
    if (where_ == Where::kMerges && inner_depth_ == 1) {
      inner_depth_ = 2;
      pair_.clear();
      return true;
    }
    return open(Json::array());
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& k) override {
    if (where_ == Where::kVocabulary) {
      token_ = std::move(k);
    } else if (where_ == Where::kTree) {
      key_ = k;
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    // nlohmann's text starts with its own error number in brackets.
    std::string_view what = error.what();
    what.remove_prefix(std::min(what.size(), what.find("] ") + 2));
    bad_input("{}: malformed JSON at byte {}: {}", name_, position, what);
  }

  bool merges_before_vocabulary() const { return early_merges_; }
  void merges_only() { merges_only_ = true; }

 private:
  enum class Where : uint8_t { kTree, kVocabulary, kMerges, kSkip };

  bool at_model_key(std::string_view wanted) const {
    return stack_.size() == 2 && path_model_ && key_ == wanted;
  }

  bool number(int64_t i) {
    if (where_ != Where::kVocabulary) return value(Json(i));
    if (merges_only_) return true;
    ADDER_CHECK(i >= 0 && i < kIdLimit, "{}: model.vocab['{}']: expected an id in [0, {}), got {}",
                name_, token_, kIdLimit, i);
    const auto id = static_cast<int32_t>(i);
    ADDER_CHECK(parts_.vocabulary.insert(id, token_),
                "{}: model.vocab['{}']: the token or its id {} occurs twice", name_, token_, id);
    return true;
  }

  bool value(Json v) {
    switch (where_) {
      case Where::kVocabulary:
        bad_input("{}: model.vocab['{}']: expected a whole number, got {}", name_, token_,
                  v.type_name());
      case Where::kMerges:
        bad_input("{}: model.merges[{}]: expected a string or a pair of strings, got {}", name_,
                  rank_, v.type_name());
      case Where::kSkip:
        return true;
      case Where::kTree:
        add(std::move(v));
    }
    return true;
  }

  Json* add(Json v) {
    ADDER_CHECK(++values_ <= kMostValues, "{}: more than {} JSON values outside model.vocab", name_,
                kMostValues);
    if (stack_.empty()) {
      parts_.config = std::move(v);
      return &parts_.config;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(v));
      return &parent.back();
    }
    return &(parent[key_] = std::move(v));
  }

  bool open(Json v) {
    if (where_ == Where::kSkip) {
      ADDER_CHECK(++inner_depth_ <= kDeepest, "{}: more than {} levels", name_, kDeepest);
      return true;
    }
    if (where_ != Where::kTree) return value(std::move(v));
    ADDER_CHECK(stack_.size() < kDeepest, "{}: more than {} levels", name_, kDeepest);
    if (stack_.size() == 1) path_model_ = key_ == "model" && v.is_object();
    stack_.push_back(add(std::move(v)));
    return true;
  }

  bool close() {
    if (where_ == Where::kTree) {
      stack_.pop_back();
      return true;
    }
    if (where_ == Where::kMerges && inner_depth_ == 2) {
      ADDER_CHECK(pair_.size() == 2, "{}: model.merges[{}]: expected 2 strings, got {}", name_,
                  rank_, pair_.size());
      merge(pair_[0], pair_[1]);
    }
    if (--inner_depth_ == 0) {
      if (where_ == Where::kVocabulary) vocabulary_seen_ = true;
      where_ = Where::kTree;
    }
    return true;
  }

  bool merge_string(std::string& s) {
    if (inner_depth_ == 2) {
      ADDER_CHECK(pair_.size() < 2, "{}: model.merges[{}]: more than 2 strings", name_, rank_);
      pair_.push_back(std::move(s));
      return true;
    }
    const size_t blank = s.find(' ');
    ADDER_CHECK(blank != std::string::npos && s.find(' ', blank + 1) == std::string::npos,
                "{}: model.merges[{}]: expected two tokens with a blank between them, got '{}'",
                name_, rank_, s);
    merge(std::string_view(s).substr(0, blank), std::string_view(s).substr(blank + 1));
    return true;
  }

  void merge(std::string_view left, std::string_view right) {
    if (!vocabulary_seen_ && !merges_only_) {
      early_merges_ = true;
      return;
    }
    joined_.assign(left).append(right);
    const auto merged = parts_.vocabulary.find(joined_);
    const auto a = parts_.vocabulary.find(left), b = parts_.vocabulary.find(right);
    ADDER_CHECK(a && b && merged, "{}: model.merges[{}]: '{}' is not in model.vocab", name_, rank_,
                !a   ? left
                : !b ? right
                     : std::string_view(joined_));
    parts_.merges.insert(*a, *b, rank_++, *merged);
  }

  TokenizerJsonParts& parts_;
  const std::string& name_;
  Where where_ = Where::kTree;
  std::vector<Json*> stack_;  // the open containers of the tree
  std::string key_, token_, joined_;
  std::vector<std::string> pair_;
  size_t values_ = 0, inner_depth_ = 0;
  uint32_t rank_ = 0;
  bool path_model_ = false, vocabulary_seen_ = false, early_merges_ = false, merges_only_ = false;
};

}  // namespace

TokenizerJsonParts read_tokenizer_json(std::string_view text, const std::string& name) {
  TokenizerJsonParts parts;
  Reader reader(parts, name);
  Json::sax_parse(text.begin(), text.end(), &reader);
  ADDER_CHECK(parts.config.is_object(), "{}: expected a JSON object, got {}", name,
              parts.config.type_name());
  if (reader.merges_before_vocabulary()) {
    // Unusual order: the merges are read again, now that the ids are known.
    parts.config = Json();
    Reader again(parts, name);
    again.merges_only();
    Json::sax_parse(text.begin(), text.end(), &again);
  }
  parts.vocabulary.shrink_to_fit();
  return parts;
}

}  // namespace adder
