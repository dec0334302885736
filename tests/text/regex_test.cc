#include "text/regex.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "text_testing.h"

namespace adder {
namespace {

std::vector<std::string> all_matches(std::string_view pattern, std::string_view text) {
  const Regex regex(pattern, "test");
  Regex::Searcher searcher(regex);
  std::vector<std::string> found;
  for (size_t at = 0; at < text.size();) {
    const auto match = searcher.find(text, at);
    if (!match) break;
    found.emplace_back(text.substr(match->begin, match->end - match->begin));
    at = match->end;
  }
  return found;
}

using Strings = std::vector<std::string>;

TEST(Regex, TranslatesOnigurumaToPcre2) {
  const auto translated = [](std::string_view p) { return oniguruma_to_pcre2(p, "test"); };
  EXPECT_EQ(translated(R"(\p{L}+|[^\r\n]?)"), R"(\p{L}+|[^\r\n]?)");
  EXPECT_EQ(translated(R"(\h\H[\h_])"), "[0-9a-fA-F][^0-9a-fA-F][0-9a-fA-F_]");
  EXPECT_EQ(translated(R"(\u4e2d\v)"), R"(\x{4e2d}[\x0b])");
  EXPECT_EQ(translated("a{,3}b{2}c{"), "a{0,3}b{2}c{");
  EXPECT_EQ(translated(R"(\p{N}{1,3}+x)"), R"((?:\p{N}{1,3})+x)");
  EXPECT_EQ(translated("(ab){1,2}+"), "(?:(ab){1,2})+");
  EXPECT_EQ(translated("(?mi:.)(?-m)"), "(?si:.)(?-s)");
  EXPECT_EQ(translated("[]a]"), "[]a]");
  EXPECT_EQ(translated("[[:alpha:]]"), "[[:alpha:]]");
}

TEST(Regex, RefusesWhatPcre2CannotExpress) {
  for (const char* pattern : {"[a[bc]]", "[a-z&&[^b]]", R"([\W])", R"([\H])"}) {
    try {
      const Regex regex(pattern, "x.json: pattern");
      FAIL() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << pattern;
      EXPECT_TRUE(std::string_view(error.what()).starts_with("x.json: pattern: ")) << error.what();
    }
  }
  for (const char* pattern :
       {"(", "[a", "a**", R"(\p{Nonsense})", R"(\u12)", R"(\C)", "x{99999}"}) {
    EXPECT_THROW(Regex(pattern, "x.json"), Error) << pattern;
  }
  EXPECT_THROW(Regex(std::string(20'000, 'a'), "x.json"), Error);
}

TEST(Regex, HasOnigurumasClasses) {
  EXPECT_EQ(all_matches(R"(\s+)", "a\u180e \u3000b\u0085"), (Strings{" \u3000", "\u0085"}));
  EXPECT_EQ(all_matches(R"(\S+)", "a\u180eb \u00a0c"), (Strings{"a\u180eb", "c"}));
  EXPECT_EQ(all_matches(R"(\w+)", "e\u0301_\u00b2-x"), (Strings{"e\u0301_", "x"}));
  EXPECT_EQ(all_matches("(?i:'s)", "'s'S'\u017f"), (Strings{"'s", "'S", "'\u017f"}));
  EXPECT_EQ(all_matches(".+$", "a\nb"), (Strings{"a", "b"}));
  EXPECT_EQ(all_matches(R"(\s+(?!\S)|\s+)", "a   b "), (Strings{"  ", " ", " "}));
  EXPECT_EQ(all_matches("x*", "axxb"), Strings{"xx"});  // empty matches are passed over
}

TEST(Regex, StopsHopelessBacktracking) {
  const Regex regex("(a+)+$", "x.json: pattern");
  Regex::Searcher searcher(regex);
  try {
    (void)searcher.find(std::string(40, 'a').append("b"), 0);
    FAIL() << "2^40 steps were taken";
  } catch (const Error& error) {
    EXPECT_TRUE(std::string_view(error.what()).starts_with("x.json: pattern: the pattern fails"))
        << error.what();
  }
}

TEST(Regex, TakesLongGroupsBeyondTheCompiledStack) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "ab";
  EXPECT_EQ(all_matches("(?:a|ab|b)+", text).front().size(), text.size());
}

}  // namespace
}  // namespace adder
