// Constrained generation: only what a grammar allows can be chosen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/logit_editor.h"
#include "engine/token_mask.h"

namespace adder {

// The text from here on must be one of the matcher's grammar. end_ids end it, where it is complete.
std::unique_ptr<LogitEditor> make_grammar_editor(GrammarMatcher matcher,
                                                 std::vector<int32_t> end_ids);

// Compiled grammars of one model, the newest ones kept: a server sees few of them, many times.
// Thread-safe. Methods throw Error(kBadInput) for a grammar or schema that is wrong.
class GrammarCache {
 public:
  explicit GrammarCache(const Engine& engine, size_t capacity = 16);

  GrammarMatcher gbnf(std::string_view text);
  GrammarMatcher json_schema(std::string_view schema);
  GrammarMatcher any_json_object();

  // What ends a text of the model by itself.
  const std::vector<int32_t>& eos_ids() const { return eos_ids_; }

 private:
  using Compile = std::shared_ptr<const Grammar> (*)(std::string_view);
  GrammarMatcher find(std::string key, std::string_view text, Compile compile);

  const Tokenizer& tokenizer_;
  size_t capacity_;
  std::vector<int32_t> eos_ids_;
  std::mutex mutex_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;       // made for the first grammar
  std::list<std::pair<std::string, GrammarMatcher>> kept_;  // newest first
};

}  // namespace adder
