#include "engine/token_mask.h"

#include <chrono>
#include <thread>

#include "engine/grammar_states.h"
#include "engine/json_schema_grammar.h"
#include "grammar_testing.h"

namespace adder {
namespace {

using testing::accept_bytes;
using testing::allowed_ids;
using testing::byte_vocabulary;
using testing::can_accept;
using testing::expect_refused;
using testing::GrammarPtr;
using testing::json_vocabulary;
using testing::matches;
using testing::VocabularyPtr;

// Grammars of many kinds: nested, ambiguous, with parts that may be empty, with characters of
// several bytes.
std::vector<GrammarPtr> grammars() {
  std::vector<GrammarPtr> all = {
      json_object_grammar(),
      json_schema_grammar(R"({"type": "object", "properties": {"name": {"type": "string",
        "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "id": {"enum": ["a", "abc", 12, null]}}, "required": ["age"],
        "additionalProperties": {"type": "array", "items": {"type": "boolean"}}})"),
  };
  for (const char* text : {
           R"(root ::= [^"\\\x01-\x1f]* "end")",
           R"(root ::= "a" root "b" | "b" root "a" | "" | "c" [é中😀]+)",
           "root ::= sum | product\nsum ::= \"(\" root \"1\" root \")\" | x\n"
           "product ::= \"(\" root \"2\" root \")\" | x\nx ::= \"\"? [ab]? \"1\"",
           "root ::= (a? b? c?){0,20} \"}\"\na ::= \"a\" | \"ab\"\nb ::= \"ab\" | \"b\"\nc ::= a b",
           "root ::= ([a-z]{1,3} \" \")* ([a-z] | \" \"){0,40} .?",
           R"(root ::= "{" ("\"" [a-z]+ "\": " [0-9]{1,3} (", " | "," )?)* "}")",
       }) {
    all.push_back(Grammar::parse(text));
  }
  return all;
}

// One random walk; the mask of every state against each token's bytes by themselves, tried with
// every stack kept apart.
void check_walk(const GrammarPtr& grammar, const VocabularyPtr& vocabulary, testing::Rng& rng,
                int steps, int tried) {
  GrammarMatcher matcher(grammar, vocabulary);
  testing::StackMatcher stacks(grammar);
  std::string text;
  for (int step = 0; step < steps; ++step) {
    ASSERT_EQ(matcher.can_end(), stacks.can_end()) << text;
    const auto allowed = allowed_ids(matcher, static_cast<size_t>(vocabulary->size()));
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < vocabulary->size(); ++id) {
      if (allowed[static_cast<size_t>(id)]) ids.push_back(id);
      if (tried < vocabulary->size() && rng.below(vocabulary->size()) >= tried) continue;
      const std::string_view bytes = vocabulary->bytes(id);
      const bool expected = !bytes.empty() && stacks.can_take(bytes);
      ASSERT_EQ(allowed[static_cast<size_t>(id)], expected) << "'" << bytes << "' after " << text;
      ASSERT_EQ(can_accept(matcher, id), expected) << "'" << bytes << "' after " << text;
    }
    ASSERT_EQ(matcher.stuck(), ids.empty() && !stacks.can_end());
    if (ids.empty()) return;
    const int32_t id = ids[static_cast<size_t>(rng.below(static_cast<int64_t>(ids.size())))];
    ASSERT_FALSE(matcher.must_end());
    matcher.accept(id);
    text += vocabulary->bytes(id);
    for (const char c : vocabulary->bytes(id)) stacks.step(static_cast<uint8_t>(c));
  }
}

TEST(TokenMask, EqualsTryingEachToken) {
  testing::Rng rng(11);
  for (const GrammarPtr& grammar : grammars()) {
    for (int walk = 0; walk < 6; ++walk) {
      check_walk(grammar, json_vocabulary(), rng, 20, json_vocabulary()->size());
      check_walk(grammar, byte_vocabulary(), rng, 30, byte_vocabulary()->size());
    }
  }
}

TEST(TokenMask, EqualsTryingEachTokenOfNeoX) {
  const VocabularyPtr vocabulary = testing::neox_vocabulary();
  if (vocabulary == nullptr) GTEST_SKIP() << "missing tokenizers/20B_tokenizer.json";
  testing::Rng rng(12);
  for (const GrammarPtr& grammar : grammars()) check_walk(grammar, vocabulary, rng, 12, 400);
}

TEST(TokenMask, HoldsTheBytesOfEveryToken) {
  const auto tokenizer = testing::make_json_tokenizer();
  const TokenVocabulary vocabulary(*tokenizer);
  ASSERT_EQ(vocabulary.size(), tokenizer->size());
  std::vector<int> seen(static_cast<size_t>(vocabulary.size()));
  std::string path;
  for (size_t i = 0; i < vocabulary.nodes().size(); ++i) {
    const TokenVocabulary::Node& node = vocabulary.nodes()[i];
    ASSERT_LE(node.depth, path.size() + 1);
    ASSERT_GT(node.end, i);
    path.resize(node.depth - 1);
    path += static_cast<char>(node.byte);
    for (int32_t id = node.token; id != TokenVocabulary::kNone; id = vocabulary.next_equal(id)) {
      EXPECT_EQ(vocabulary.bytes(id), path);
      EXPECT_EQ(tokenizer->token_bytes(id), path);
      ++seen[static_cast<size_t>(id)];
    }
  }
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    EXPECT_EQ(seen[static_cast<size_t>(id)], tokenizer->is_special(id) ? 0 : 1) << id;
  }
  EXPECT_EQ(vocabulary.bytes(vocabulary.size() - 1), "");
  expect_refused("token id: expected 0 .. ", [&] { vocabulary.bytes(vocabulary.size()); });
}

TEST(TokenMask, AllowsTheEndWhereTheTextMayEnd) {
  const auto grammar = Grammar::parse(R"(root ::= "ab" "c"?)");
  GrammarMatcher matcher(grammar, json_vocabulary());
  const int32_t end = json_vocabulary()->size() - 1, twin = end - 1;
  const std::vector<int32_t> ends = {end, 'c', -1, 1'000'000, end};
  constexpr size_t kRows = 512;  // more than there are ids
  EXPECT_EQ(json_vocabulary()->bytes(twin), "abc");

  const auto count = [&](const std::vector<bool>& allowed) {
    return std::count(allowed.begin(), allowed.end(), true);
  };
  auto allowed = allowed_ids(matcher, kRows, ends);
  EXPECT_EQ(count(allowed), 4);  // a, ab, abc twice
  EXPECT_TRUE(allowed['a'] && allowed[static_cast<size_t>(twin)]);
  matcher.accept('a');
  allowed = allowed_ids(matcher, kRows, ends);
  EXPECT_EQ(count(allowed), 1);
  EXPECT_TRUE(allowed['b']);
  EXPECT_FALSE(matcher.can_end());
  matcher.accept('b');
  EXPECT_TRUE(matcher.can_end());
  EXPECT_FALSE(matcher.must_end());
  allowed = allowed_ids(matcher, kRows, ends);
  EXPECT_EQ(count(allowed), 2);
  EXPECT_TRUE(allowed['c'] && allowed[static_cast<size_t>(end)]);
  // 'c' is only a token of the text where it ends nothing.
  EXPECT_TRUE(allowed_ids(matcher, kRows)['c']);
  // Fewer logits than ids.
  EXPECT_EQ(count(allowed_ids(matcher, 'c', ends)), 0);
  EXPECT_EQ(count(allowed_ids(matcher, 'c' + 1)), 1);
  EXPECT_EQ(allowed_ids(matcher, 0).size(), 0u);

  matcher.accept('c');
  EXPECT_TRUE(matcher.can_end() && matcher.must_end());
  EXPECT_FALSE(matcher.stuck());
  EXPECT_EQ(count(allowed_ids(matcher, kRows)), 0);
  allowed = allowed_ids(matcher, kRows, ends);
  EXPECT_EQ(count(allowed), 2);
  EXPECT_TRUE(allowed[static_cast<size_t>(end)] && allowed['c']);
}

TEST(TokenMask, RefusesTokensThatCannotCome) {
  GrammarMatcher matcher(Grammar::parse(R"(root ::= "ab")"), json_vocabulary());
  const int32_t size = json_vocabulary()->size();
  expect_refused("grammar: token 98, 'b', cannot come here", [&] { matcher.accept('b'); });
  expect_refused("cannot come here", [&] { matcher.accept(size - 1); });  // a control token
  expect_refused("token id: expected 0 ..", [&] { matcher.accept(size); });
  expect_refused("token id: expected 0 ..", [&] { matcher.accept(-1); });
  matcher.accept('a');
  matcher.accept('b');
  EXPECT_TRUE(matcher.must_end());
}

TEST(TokenMask, CopiesGoOnByThemselves) {
  GrammarMatcher matcher(json_object_grammar(), byte_vocabulary());
  ASSERT_TRUE(accept_bytes(matcher, R"({"a": [1)"));
  GrammarMatcher copy = matcher;
  ASSERT_TRUE(accept_bytes(copy, "]}"));
  EXPECT_TRUE(copy.must_end());
  EXPECT_FALSE(matcher.can_end());
  ASSERT_TRUE(accept_bytes(matcher, ",2]"));
  EXPECT_FALSE(matcher.must_end());
}

TEST(TokenMask, SaysWhenNoTokenGoesOn) {
  // Byte 0 is the end of text in this vocabulary, so no token spells it.
  GrammarMatcher matcher(Grammar::parse(R"(root ::= "a\x00b")"), byte_vocabulary());
  EXPECT_FALSE(matcher.stuck());
  matcher.accept('a');
  EXPECT_TRUE(matcher.stuck());
  std::vector<float> logits(256, 0.0f);
  const std::vector<int32_t> ends = {0};
  EXPECT_FALSE(matcher.mask(logits, ends));
}

TEST(TokenMask, TokensMayEndInsideACharacter) {
  GrammarMatcher matcher(Grammar::parse("root ::= [é中]"), byte_vocabulary());
  matcher.accept(0xe4);
  EXPECT_FALSE(matcher.can_end());
  const auto allowed = allowed_ids(matcher, 256);
  EXPECT_EQ(std::count(allowed.begin(), allowed.end(), true), 1);
  EXPECT_TRUE(allowed[0xb8]);
  matcher.accept(0xb8);
  matcher.accept(0xad);
  EXPECT_TRUE(matcher.must_end());
}

// With stacks kept apart this has 2^40 of them.
TEST(TokenMask, AmbiguityDoesNotMultiply) {
  const auto grammar = Grammar::parse(
      "root ::= sum | product\nsum ::= \"(\" root \"+\" root \")\" | \"1\"\n"
      "product ::= \"(\" root \"*\" root \")\" | \"1\"");
  std::string text(40, '('), back;
  for (int i = 0; i < 40; ++i) back += i % 2 == 0 ? "+1)" : "*1)";
  EXPECT_TRUE(matches(grammar, text + "1" + back));
  EXPECT_FALSE(matches(grammar, text + "1" + back + ")"));
}

TEST(TokenMask, NestingIsBounded) {
  const auto grammar = Grammar::parse(R"~(root ::= "(" root ")" | "x")~");
  GrammarMatcher matcher(grammar, byte_vocabulary());
  for (uint32_t i = 0; i < GrammarStates::kMaxDepth; ++i) matcher.accept('(');
  EXPECT_FALSE(can_accept(matcher, '('));
  matcher.accept('x');
  for (uint32_t i = 0; i < GrammarStates::kMaxDepth; ++i) matcher.accept(')');
  EXPECT_TRUE(matcher.must_end());
}

// With an error after bounded time, or with answers.
TEST(TokenMask, HostileGrammarsEnd) {
  std::string classes;
  for (char c = 'a'; c <= 'z'; ++c)
    classes += fmt::format("{}\"{}\" root \"{}\"", c > 'a' ? " | " : "", c, c);
  const std::vector<std::string> texts = {
      "root ::= (\"a\"?){10000} \"b\"",
      "root ::= ((\"a\"?){100}){100} ((.?){100}){100}",
      "root ::= (.* .*){50}",
      "root ::= " + classes + " | \"\"",  // a state for each text
      "root ::= (x | y)* z\nx ::= \"a\" x \"a\" | \"a\" y | \"\"\ny ::= \"a\" y \"a\" x | \"a\"\n"
      "z ::= x y x",
      "root ::= a a a a a a a a\na ::= b b b b b b b b\nb ::= c c c c c c c c\nc ::= d d d d d d\n"
      "d ::= e e e e e e\ne ::= \"a\"? \"b\"? (\"(\" root \")\")?",
  };
  VocabularyPtr vocabulary = testing::neox_vocabulary();
  if (vocabulary == nullptr) vocabulary = json_vocabulary();
  int errors = 0;
  for (const std::string& text : texts) {
    const GrammarPtr grammar = Grammar::parse(text);
    testing::Rng rng(5);
    std::vector<float> logits(static_cast<size_t>(vocabulary->size()));
    try {
      GrammarMatcher matcher(grammar, vocabulary);
      for (int step = 0; step < 10; ++step) {
        std::fill(logits.begin(), logits.end(), 0.0f);
        if (!matcher.mask(logits, {})) break;
        int32_t id = static_cast<int32_t>(rng.below(vocabulary->size()));
        while (logits[static_cast<size_t>(id)] != 0.0f) id = (id + 1) % vocabulary->size();
        matcher.accept(id);
      }
    } catch (const Error& error) {
      ++errors;
      EXPECT_NE(std::string(error.what()).find("grammar: too ambiguous"), std::string::npos);
    }
  }
  EXPECT_LT(errors, static_cast<int>(texts.size()));
}

// More states than are kept: matchers move on to fresh memory, alone and in company.
TEST(TokenMask, ForgetsStatesAndGoesOn) {
  const auto grammar =
      Grammar::parse(R"(root ::= "a" root "a" | "b" root "b" | "c" root "c" | "d" root "d" | ".")");
  const GrammarMatcher first(grammar, byte_vocabulary());
  testing::Rng rng(9);
  std::vector<GrammarMatcher> matchers(3, first);
  std::vector<std::string> texts(3);
  for (int round = 0; round < 60; ++round) {
    for (size_t k = 0; k < matchers.size(); ++k) {
      if (texts[k].size() > 900) {
        ASSERT_TRUE(
            accept_bytes(matchers[k], "." + std::string(texts[k].rbegin(), texts[k].rend())));
        ASSERT_TRUE(matchers[k].must_end());
        matchers[k] = first;
        texts[k].clear();
      }
      for (int i = 0; i < 97; ++i) {
        const char c = static_cast<char>('a' + rng.below(4));
        matchers[k].accept(c);
        texts[k] += c;
      }
      EXPECT_EQ(allowed_ids(matchers[k], 256)['d'], true);
      EXPECT_EQ(allowed_ids(matchers[k], 256)['e'], false);
    }
  }
}

TEST(TokenMask, CopiesMayBeUsedByDifferentThreads) {
  const GrammarMatcher first(json_object_grammar(), json_vocabulary());
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (size_t k = 0; k < texts.size(); ++k) {
    threads.emplace_back([&, k] {
      testing::Rng rng(k);
      for (int i = 0; i < 5; ++i) {
        texts[k] = testing::random_text(first, json_vocabulary(), rng, 30);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_TRUE(nlohmann::json::accept(text)) << text;
}

// What a mask costs is printed, not judged: --gtest_also_run_disabled_tests.
TEST(TokenMask, DISABLED_Cost) {
  const VocabularyPtr vocabulary = testing::neox_vocabulary();
  ASSERT_NE(vocabulary, nullptr);
  std::vector<float> logits(50'432);
  const auto report = [&](const std::string& name, const GrammarPtr& grammar,
                          const std::string& text) {
    using Clock = std::chrono::steady_clock;
    const auto micros = [](Clock::duration d) {
      return std::chrono::duration<double, std::micro>(d).count();
    };
    GrammarMatcher matcher(grammar, vocabulary);
    for (const char c : text) {
      for (int32_t id = 0; id < vocabulary->size(); ++id) {
        if (vocabulary->bytes(id) == std::string_view(&c, 1)) {
          matcher.accept(id);
          break;
        }
      }
    }
    const auto begin = Clock::now();
    matcher.mask(logits, {});
    const auto middle = Clock::now();
    matcher.mask(logits, {});
    const auto end = Clock::now();
    fmt::print("{:28} new {:8.1f} us, again {:6.1f} us\n", name, micros(middle - begin),
               micros(end - middle));
  };
  const auto json = json_object_grammar();
  report("start", json, "");
  report("key", json, "{");
  report("in a key", json, "{\"a");
  report("value", json, "{\"a\":");
  report("in a string", json, "{\"a\":\"b");
  report("in a nested string", json, "{\"a\":[{\"b\":\"c");
  report("in a number", json, "{\"a\":1");
  report("after a value", json, "{\"a\":1,\"b\":true");
  report("length-bounded string", json_schema_grammar(R"({"type":"string","maxLength":2000})"),
         "\"");
  report("any text", Grammar::parse("root ::= .*"), "a");
}

}  // namespace
}  // namespace adder
