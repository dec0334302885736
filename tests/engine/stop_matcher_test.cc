#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include "testing/inputs.h"

namespace adder {
namespace {

// What the definition says, on the whole text: cut where a stop string is complete first, the
// longest of those that end there.
std::string cut(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& s : stops) {
      if (!s.empty() && std::string_view(text).substr(0, end).ends_with(s)) {
        longest = std::max(longest, s.size());
      }
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

// Two letters and short stop strings: overlaps, repeats and false starts all the time.
TEST(StopMatcher, EqualsTheDefinitionForAnyPieces) {
  testing::Rng rng(1);
  const auto word = [&](int64_t longest) {
    std::string s(static_cast<size_t>(rng.below(longest + 1)), 'a');
    for (char& c : s) c = static_cast<char>('a' + rng.below(2));
    return s;
  };
  int matches = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::vector<std::string> stops = {word(6), word(6), word(9)};
    StopMatcher matcher(stops);
    std::string text, shown;
    for (int piece = 0; piece < 8 && !matcher.matched(); ++piece) {
      const std::string next = word(4);
      text += next;
      shown += matcher.push(next);
      // Never more than the longest stop string less one byte is held back.
      ASSERT_TRUE(matcher.matched() || shown.size() + 8 >= text.size());
      ASSERT_EQ(matcher.matched(), cut(text, stops) != text);
    }
    matches += matcher.matched();
    shown += matcher.finish();
    ASSERT_EQ(shown, cut(text, stops))
        << text << " / " << stops[0] << ' ' << stops[1] << ' ' << stops[2];
    ASSERT_EQ(matcher.finish(), "");
  }
  EXPECT_GT(matches, 500);
  EXPECT_LT(matches, 4900);
}

TEST(StopMatcher, GivesNothingAfterAMatch) {
  StopMatcher matcher({"x"});
  EXPECT_EQ(matcher.push("ax"), "a");
  EXPECT_EQ(matcher.push("b"), "");
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_TRUE(matcher.matched());
}

}  // namespace
}  // namespace adder
