// The editor around a grammar: what it forbids, where it ends, and that copies go their own ways.
#include "engine/grammar_editor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <thread>

#include "core/error.h"
#include "engine/engine_testing.h"

namespace adder {
namespace {

using testing::demo_engine;

constexpr int32_t kEnd = 0;  // of the demo model, whose other ids are bytes

std::set<int32_t> allowed(LogitEditor& editor) {
  std::vector<float> logits(256, 1.0f);
  editor.edit(logits);
  std::set<int32_t> ids;
  for (int32_t id = 0; id < 256; ++id) {
    if (!std::isinf(logits[static_cast<size_t>(id)])) ids.insert(id);
  }
  return ids;
}

TEST(GrammarEditor, AllowsWhatTheGrammarDoesAndEndsWithIt) {
  const auto engine = demo_engine();
  GrammarCache grammars(*engine);
  EXPECT_EQ(grammars.eos_ids(), (std::vector<int32_t>{kEnd}));
  const auto editor = make_grammar_editor(grammars.gbnf(R"(root ::= "ab" | "ac" "d"?)"), {kEnd});
  EXPECT_EQ(allowed(*editor), (std::set<int32_t>{'a'}));
  editor->accept('a');
  const auto fork = editor->clone();
  editor->accept('b');
  EXPECT_TRUE(editor->finished());
  EXPECT_EQ(allowed(*fork), (std::set<int32_t>{'b', 'c'}));
  fork->accept('c');
  EXPECT_FALSE(fork->finished());
  EXPECT_EQ(allowed(*fork), (std::set<int32_t>{kEnd, 'd'}));
  fork->accept(kEnd);  // ends the answer; nothing of the grammar
}

TEST(GrammarEditor, IsAnErrorWhereNoTokenCanGoOn) {
  const auto engine = demo_engine();
  GrammarCache grammars(*engine);
  const auto editor = make_grammar_editor(grammars.gbnf(R"(root ::= "a")"), {});
  std::vector<float> logits(80, 1.0f);  // a vocabulary without 'a'
  EXPECT_THROW(editor->edit(logits), Error);
}

TEST(GrammarEditor, RefusesWrongGrammars) {
  const auto engine = demo_engine();
  GrammarCache grammars(*engine);
  EXPECT_THROW(grammars.gbnf("root ::= ("), Error);
  EXPECT_THROW(grammars.json_schema("{\"type\": 5}"), Error);
  EXPECT_NO_THROW(grammars.any_json_object());
}

TEST(GrammarEditor, IsSharedByThreads) {
  const auto engine = demo_engine();
  GrammarCache grammars(*engine, 2);  // smaller than the number of grammars in use
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&grammars, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string letter(1, static_cast<char>('a' + (i + t) % 5));
        auto editor = make_grammar_editor(grammars.gbnf("root ::= \"" + letter + "\"+"), {kEnd});
        EXPECT_EQ(allowed(*editor), (std::set<int32_t>{letter[0]}));
        editor->accept(letter[0]);
        EXPECT_EQ(allowed(*editor), (std::set<int32_t>{kEnd, letter[0]}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace adder
