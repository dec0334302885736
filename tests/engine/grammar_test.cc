// GBNF: what its texts are, and what is refused.
#include "engine/grammar.h"

#include <functional>
#include <tuple>

#include "grammar_testing.h"

namespace adder {
namespace {

using testing::all_texts;
using testing::expect_refused;
using testing::matches;
using Texts = std::set<std::string>;

TEST(Grammar, HasTheTextsOfItsRules) {
  EXPECT_EQ(all_texts(Grammar::parse(R"(root ::= "a" | "b" "c")")), (Texts{"a", "bc"}));
  EXPECT_EQ(all_texts(Grammar::parse("# first\nroot ::= x y? # one\r\n\nx ::= [0-2]\ny::=\"-\"")),
            (Texts{"0", "1", "2", "0-", "1-", "2-"}));
  EXPECT_EQ(all_texts(Grammar::parse(R"(root ::= "a"{2} [b]{0,2} "c"{1,1})")),
            (Texts{"aac", "aabc", "aabbc"}));
  EXPECT_EQ(all_texts(Grammar::parse("root ::= (\"a\"\n | #x\n \"b\") \"\" ( )\n")),
            (Texts{"a", "b"}));
}

TEST(Grammar, GoesOnBehindTheEndOfALine) {
  EXPECT_EQ(all_texts(Grammar::parse("root ::=\n \"a\" |\n \"b\"\n\n # more\n | c\nc ::= \"d\"")),
            (Texts{"a", "b", "d"}));
}

TEST(Grammar, ReadsEscapes) {
  EXPECT_EQ(all_texts(Grammar::parse(R"(root ::= "\n\r\t\\\"\x41\u00e9\U0001F600")")),
            (Texts{"\n\r\t\\\"A\xc3\xa9\xf0\x9f\x98\x80"}));
  EXPECT_EQ(all_texts(Grammar::parse(R"(root ::= [\]\[\-\^a-])")),
            (Texts{"]", "[", "-", "^", "a"}));
  EXPECT_EQ(all_texts(Grammar::parse(R"(root ::= [^\x02-\U0010FFFF])")), Texts{"\x01"});
}

TEST(Grammar, MayBeEmpty) {
  EXPECT_EQ(all_texts(Grammar::parse("root ::= ")), Texts{""});
  EXPECT_EQ(all_texts(Grammar::parse("root ::= x\nx ::= \"a\"?")), (Texts{"", "a"}));
  EXPECT_EQ(all_texts(Grammar::parse("root ::= \"a\"{0}")), Texts{""});
}

// Random expressions, and by way of sets where their texts end, on all short strings of two
// letters.
class RandomExpression {
 public:
  explicit RandomExpression(testing::Rng& rng) : rng_(rng) {}

  // Where texts of the expression that begin at a place end.
  using Ends = std::function<std::set<size_t>(const std::string& text, size_t begin)>;

  std::pair<std::string, Ends> make(int depth) {
    const int64_t kind = depth == 0 ? 0 : rng_.below(7);
    if (kind <= 1) {
      switch (rng_.below(4)) {
        case 0:
          return {"\"a\"", word("a")};
        case 1:
          return {"\"ab\"", word("ab")};
        case 2:
          return {"[b]", word("b")};
        default:
          return {".", [](const std::string& text, size_t begin) {
                    return begin < text.size() ? std::set<size_t>{begin + 1} : std::set<size_t>{};
                  }};
      }
    }
    const auto [gbnf, ends] = make(depth - 1);
    if (kind <= 3) {
      const auto [more_gbnf, more] = make(depth - 1);
      if (kind == 2) return {gbnf + " " + more_gbnf, then(ends, more)};
      return {"(" + gbnf + " | " + more_gbnf + ")",
              [one = ends, other = more](const std::string& text, size_t begin) {
                std::set<size_t> both = one(text, begin);
                both.merge(other(text, begin));
                return both;
              }};
    }
    if (kind == 4) {  // by way of a rule
      const std::string name = "r" + std::to_string(rules_++);
      extra_ += name + " ::= " + gbnf + "\n";
      return {name, ends};
    }
    constexpr size_t kMany = 20;  // more than there are letters
    static const std::vector<std::tuple<std::string, size_t, size_t>> kRepeats = {
        {"*", 0, kMany}, {"+", 1, kMany},    {"?", 0, 1},    {"{2}", 2, 2},
        {"{1,3}", 1, 3}, {"{2,}", 2, kMany}, {"{0,2}", 0, 2}};
    const auto& [sign, min, max] = kRepeats[static_cast<size_t>(rng_.below(7))];
    return {"(" + gbnf + ")" + sign, repeat(ends, min, max)};
  }
  const std::string& rules() const { return extra_; }

 private:
  static Ends word(const std::string& word) {
    return [word](const std::string& text, size_t begin) {
      return text.compare(begin, word.size(), word) == 0 ? std::set<size_t>{begin + word.size()}
                                                         : std::set<size_t>{};
    };
  }
  static Ends then(const Ends& first, const Ends& second) {
    return [first, second](const std::string& text, size_t begin) {
      std::set<size_t> all;
      for (const size_t middle : first(text, begin)) all.merge(second(text, middle));
      return all;
    };
  }
  static Ends repeat(const Ends& part, size_t min, size_t max) {
    return [part, min, max](const std::string& text, size_t begin) {
      std::set<size_t> all, now = {begin};
      for (size_t count = 0; count <= max && !now.empty(); ++count) {
        if (count >= min) all.insert(now.begin(), now.end());
        std::set<size_t> next;
        for (const size_t place : now) next.merge(part(text, place));
        now = std::move(next);
      }
      return all;
    };
  }

  testing::Rng& rng_;
  std::string extra_;
  int rules_ = 0;
};

TEST(Grammar, EqualsSetsOfEnds) {
  std::vector<std::string> strings = {""};
  for (size_t i = 0; strings[i].size() < 6; ++i) {
    strings.push_back(strings[i] + "a");
    strings.push_back(strings[i] + "b");
  }
  testing::Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    RandomExpression expression(rng);
    const auto [gbnf, ends] = expression.make(3);
    const std::string text = "root ::= " + gbnf + "\n" + expression.rules();
    const auto grammar = Grammar::parse(text);
    for (const std::string& s : strings) {
      ASSERT_EQ(matches(grammar, s), ends(s, 0).count(s.size()) > 0) << text << " on '" << s << "'";
    }
  }
}

TEST(Grammar, FollowsRecursion) {
  const auto balanced = Grammar::parse(R"~(root ::= ("(" root ")")*)~");
  const auto palindrome =
      Grammar::parse(R"(root ::= "a" root "a" | "b" root "b" | "a" | "b" | "")");
  std::vector<std::string> strings = {""};
  for (size_t i = 0; strings[i].size() < 9; ++i) {
    strings.push_back(strings[i] + "a");
    strings.push_back(strings[i] + "b");
  }
  for (const std::string& s : strings) {
    ASSERT_EQ(matches(palindrome, s), std::equal(s.begin(), s.end(), s.rbegin())) << s;
    std::string brackets = s;
    int depth = 0, lowest = 0;
    for (char& c : brackets) {
      c = c == 'a' ? '(' : ')';
      depth += c == '(' ? 1 : -1;
      lowest = std::min(lowest, depth);
    }
    ASSERT_EQ(matches(balanced, brackets), depth == 0 && lowest == 0) << brackets;
  }
}

// Laid out as grammars usually are.
TEST(Grammar, ReadsAGrammarOfJson) {
  const auto grammar = Grammar::parse(R"(
# JSON with blanks
root   ::= object
value  ::= object | list | text | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
    text ":" ws value          # the first
    ("," ws text ":" ws value)*
  )? "}" ws
list   ::= "[" ws ( value ("," ws value)* )? "]" ws
text   ::=
  "\"" (
    [^"\\\x00-\x1F\x7F] |
    "\\" (["\\/bfnrt] | "u" [0-9a-c] [0-9a-fA-F]{3})
  )* "\"" ws
number ::= "-"? ([0-9] | [1-9] [0-9]{1,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,2})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
)");
  EXPECT_TRUE(matches(grammar, "{\"a\": [1, -2.5e+7 ,{}],\n\t \"\\u00e9\\n\":null}\n"));
  EXPECT_FALSE(matches(grammar, "{\"a\":  1}"));
  EXPECT_FALSE(matches(grammar, "{\"a\": 1,}"));
  testing::Rng rng(2);
  for (int walk = 0; walk < 100; ++walk) {
    const std::string text = testing::random_text(
        GrammarMatcher(grammar, testing::byte_vocabulary()), testing::byte_vocabulary(), rng, 60);
    ASSERT_TRUE(nlohmann::json::accept(text)) << text;
  }
}

// Right recursion is a loop, whatever it passes through.
TEST(Grammar, NeedsNoStackForLists) {
  const auto grammar =
      Grammar::parse("root ::= item more\nmore ::= (\",\" root)? \nitem ::= [a-z]+");
  std::string text = "a";
  for (int i = 0; i < 5000; ++i) text += ",b";
  EXPECT_TRUE(matches(grammar, text));
}

TEST(Grammar, TakesCharactersAndNotBytes) {
  const auto grammar =
      Grammar::parse("root ::= [^\\x01-\\x1f\\\"a-zà-ÿ\\u4e00-龥\\U0001F600-\\U0001F64F]");
  const auto expected = [](char32_t c) {
    return c >= 0x20 && c != '"' && !(c >= 'a' && c <= 'z') && !(c >= 0xe0 && c <= 0xff) &&
           !(c >= 0x4e00 && c <= 0x9fa5) && !(c >= 0x1f600 && c <= 0x1f64f);
  };
  for (char32_t c = 1; c <= 0x10ffff; c += c < 0x3000 ? 1 : 13) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    std::string text;
    append_utf8(text, c);
    ASSERT_EQ(matches(grammar, text), expected(c)) << static_cast<uint32_t>(c);
  }
  const auto any = Grammar::parse("root ::= .*");
  testing::Rng rng(3);
  int valid = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes;
    for (int64_t i = rng.below(5); i >= 0; --i) {
      constexpr uint8_t kBytes[] = {'a',  0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0,
                                    0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf4, 0xf5};
      bytes += static_cast<char>(kBytes[rng.below(18)]);
    }
    ASSERT_EQ(matches(any, bytes), is_valid_utf8(bytes));
    valid += is_valid_utf8(bytes);
  }
  EXPECT_GT(valid, 100);
}

TEST(Grammar, SaysWhatIsWrongWithItsText) {
  const auto refused = [](const std::string& text, const std::string& message) {
    expect_refused("grammar: " + message, [&] { Grammar::parse(text); });
  };
  refused("", "line 1: expected a rule named 'root', got the end");
  refused("x ::= \"a\"\n", "line 2: expected a rule named 'root'");
  refused("root ::= \"a", "line 1: expected a quote or bracket that closes, got the end");
  refused("root ::= [a", "line 1: expected a quote or bracket");
  refused("root ::= []", "line 1: expected a class of at least one character, got ']'");
  refused("root ::= [b-a]", "line 1: expected the end of a range");
  refused("root ::= (\"a\"\n", "line 2: expected an item, '|' or ')', got the end");
  refused("root ::= \"a\")", "line 1: expected an item, '|' or the end of the line, got ')'");
  refused("root ::= *", "line 1: expected an item, '|' or the end of the line, got '*'");
  refused("\nroot = \"a\"", "line 2: expected '::=', got '='");
  refused("root ::= \"a\" ::= b", "line 1: expected an item");
  refused("root ::= \"\\q\"", "line 1: expected n, r, t, x, u, U or one of");
  refused("root ::= \"\\x4\"", "line 1: expected 2 hexadecimal digits, got '\"'");
  refused("root ::= \"\\ud800\"", "line 1: expected the number of a Unicode character");
  refused("root ::= a\n\na ::= b", "line 3: expected a rule named 'b' somewhere, got none");
  refused("root ::= \"a\"\nroot ::= \"b\"", "line 2: expected one rule named 'root'");
  refused("root ::= \"a\"{2,1}", "line 1: expected a largest count of at least 2");
  refused("root ::= \"a\"{,1}", "line 1: expected a count of at most 10000, got ','");
  refused("root ::= \"a\"{10001}", "line 1: expected a count of at most 10000");
  refused("root ::= \"a\"{99999999999999}", "line 1: expected a count of at most 10000");
  refused("root ::= \"a\"{1", "line 1: expected '}', got the end");
  refused("root ::= \"a\"\nroot2 ::= \xff", "line 2: expected UTF-8, got byte 0xff");
  refused(std::string("root ::= \"a\" \0", 14), "line 1: expected an item");
  refused("root ::= <[5]>", "line 1: expected an item");
}

TEST(Grammar, RefusesWhatHasNoEndOrBeginning) {
  const auto refused = [](const std::string& text, const std::string& message) {
    expect_refused(message, [&] { Grammar::parse(text); });
  };
  refused("root ::= root \"a\" | \"b\"", "'root' begins with itself");
  refused("root ::= a\na ::= b \"x\"\nb ::= c? a | \"y\"\nc ::= \"z\"", "begins with itself");
  refused("root ::= (\"a\"? [b]*){2,3} root | \"c\"", "'root' begins with itself");
  refused("root ::= (root){3} | \"c\"", "begins with itself");
  refused("root ::= (root?)*", "begins with itself");
  refused("root ::= \"a\" root", "'root' can never be completed");
  refused("root ::= \"a\" | x\nx ::= \"b\" y\ny ::= \"c\" x", "can never be completed");
}

TEST(Grammar, BoundsWhatHostileTextCosts) {
  const auto refused = [](const std::string& text, const std::string& message) {
    expect_refused(message, [&] { Grammar::parse(text); });
  };
  refused(std::string(Grammar::kMaxSource + 1, ' '), "expected at most 65536 bytes");
  refused("root ::= " + std::string(30'000, '('), "at most 64 groups inside each other");
  refused("root ::= \"a\"" + std::string(30'000, '*'), "at most 64 operators on one item");
  refused("root ::= \"abc\"{9999} \"abc\"{9999} [a-z]{9999} [a-z]{9999} [a-z]{9999} [a-z]{9999}",
          "at most 50000 states");
  std::string classes = "root ::= ";
  for (int i = 0; i < 4000; ++i) classes += "[^\\U00010001-\\U00020003]";
  refused(classes, "at most");
  // Repeats inside each other add up.
  const auto grammar = Grammar::parse("root ::= ((([ab]{1000}){1000}){1000}){1000} \"c\"");
  EXPECT_LT(grammar->states(), 10'000u);
  // Rules in a long row, each beginning with the next.
  std::string row = "root ::= r0\n";
  for (int i = 0; i < 900; ++i) {
    row += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " \"x\"?\n";
  }
  row += "r900 ::= \"y\"";
  EXPECT_TRUE(matches(Grammar::parse(row), "yx"));
}

}  // namespace
}  // namespace adder
