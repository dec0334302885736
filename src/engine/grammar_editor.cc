#include "engine/grammar_editor.h"

#include <algorithm>

#include "core/error.h"
#include "engine/json_schema_grammar.h"

namespace adder {
namespace {

class GrammarEditor final : public LogitEditor {
 public:
  GrammarEditor(GrammarMatcher matcher, std::vector<int32_t> end_ids)
      : matcher_(std::move(matcher)), end_ids_(std::move(end_ids)) {}

  std::unique_ptr<LogitEditor> clone() const override {
    return std::make_unique<GrammarEditor>(*this);
  }
  void edit(std::span<float> logits) override {
    ADDER_CHECK(matcher_.mask(logits, end_ids_),
                "grammar: expected a token that can go on, but the model has none");
  }
  void accept(int32_t token) override {
    if (std::find(end_ids_.begin(), end_ids_.end(), token) == end_ids_.end()) {
      matcher_.accept(token);
    }
  }
  bool finished() const override { return matcher_.must_end(); }

 private:
  GrammarMatcher matcher_;
  std::vector<int32_t> end_ids_;
};

}  // namespace

std::unique_ptr<LogitEditor> make_grammar_editor(GrammarMatcher matcher,
                                                 std::vector<int32_t> end_ids) {
  return std::make_unique<GrammarEditor>(std::move(matcher), std::move(end_ids));
}

GrammarCache::GrammarCache(const Engine& engine, size_t capacity)
    : tokenizer_(engine.tokenizer()), capacity_(capacity) {
  for (int32_t id = 0; id < engine.vocab_limit(); ++id) {
    if (engine.is_eos(id)) eos_ids_.push_back(id);
  }
}

GrammarMatcher GrammarCache::gbnf(std::string_view text) {
  return find("gbnf " + std::string(text), text, &Grammar::parse);
}

GrammarMatcher GrammarCache::json_schema(std::string_view schema) {
  return find("schema " + std::string(schema), schema, &json_schema_grammar);
}

GrammarMatcher GrammarCache::any_json_object() {
  return find("object", "", [](std::string_view) { return json_object_grammar(); });
}

GrammarMatcher GrammarCache::find(std::string key, std::string_view text, Compile compile) {
  std::shared_ptr<const TokenVocabulary> vocabulary;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const auto& entry) { return entry.first == key; });
    if (found != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, found);
      return kept_.front().second;
    }
    if (!vocabulary_) vocabulary_ = std::make_shared<const TokenVocabulary>(tokenizer_);
    vocabulary = vocabulary_;
  }
  GrammarMatcher matcher(compile(text), std::move(vocabulary));
  const std::lock_guard lock(mutex_);
  kept_.emplace_front(std::move(key), matcher);
  if (kept_.size() > capacity_) kept_.pop_back();
  return matcher;
}

}  // namespace adder
