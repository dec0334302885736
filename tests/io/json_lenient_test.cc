#include "io/json_lenient.h"

#include <cmath>
#include <limits>

#include "io/io_testing.h"

namespace adder {
namespace {

using namespace adder::testing;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

JsonValue parse(std::string_view text) {
  return JsonValue::parse(text, "config.json");
}

TEST(JsonLenient, ReadsOrdinaryValues) {
  const JsonValue v = parse(
      R"({"i": -7, "f": 1.5, "whole": 16.0, "s": "a\u00e9\n", "t": true, "n": null,
          "o": {"layer": "Mamba2"}, "a": [1, [2], "x"], "big": 18446744073709551615})");
  EXPECT_EQ(v.get_int("i"), -7);
  EXPECT_EQ(v.get_int("whole"), 16);
  EXPECT_EQ(v.get_number("f"), 1.5);
  EXPECT_EQ(v.get_number("i"), -7.0);
  EXPECT_EQ(v.get_string("s"), "a\xc3\xa9\n");
  EXPECT_EQ(v.get_bool("t"), true);
  EXPECT_EQ(v.get_object("o")->get_string("layer"), "Mamba2");
  EXPECT_EQ(v.get_number("big"), 0x1p64);
  const auto a = v.get_array("a");
  ASSERT_EQ(a->size(), 3u);
  EXPECT_EQ((*a)[1].as_array()[0].as_int(), 2);
  EXPECT_EQ(v.keys(),
            (std::vector<std::string>{"i", "f", "whole", "s", "t", "n", "o", "a", "big"}));
  EXPECT_TRUE(v.has("n"));
  EXPECT_TRUE(v.get("n")->is_null());
  EXPECT_FALSE(v.get_int("n").has_value());
  EXPECT_FALSE(v.get_array("absent").has_value());
  EXPECT_FALSE(v.get("absent").has_value());
  EXPECT_EQ(v.name(), "config.json");
}

TEST(JsonLenient, AcceptsEverySpellingOfInfinityAndNaN) {
  for (const char* spelling :
       {"Infinity", "\"Infinity\"", "\"inf\"", "\"+inf\"", "{\"__float__\": \"Infinity\"}"}) {
    const JsonValue v = parse(std::string("{\"limit\": [0.0, ") + spelling + "]}");
    EXPECT_EQ((*v.get_array("limit"))[1].as_number(), kInfinity) << spelling;
  }
  for (const char* spelling :
       {"-Infinity", "\"-Infinity\"", "\"-inf\"", "{\"__float__\": \"-Infinity\"}"}) {
    const JsonValue v = parse(std::string("{\"x\":") + spelling + "}");
    EXPECT_EQ(v.get_number("x"), -kInfinity) << spelling;
  }
  for (const char* spelling : {"NaN", "\"NaN\"", "{\"__float__\": \"NaN\"}"}) {
    const JsonValue v = parse(std::string("{\"x\":") + spelling + "}");
    EXPECT_TRUE(std::isnan(*v.get_number("x"))) << spelling;
  }
  EXPECT_EQ(parse("Infinity").as_number(), kInfinity);
}

TEST(JsonLenient, BareWordsAreNumbersAndQuotedOnesStayStrings) {
  const JsonValue v = parse(R"({"a": "x Infinity NaN", "b": Infinity, "c": "Infinity", "d": NaN})");
  EXPECT_EQ(v.get_string("a"), "x Infinity NaN");
  EXPECT_TRUE(v.get("b")->is_number());
  EXPECT_FALSE(v.get("b")->is_string());
  EXPECT_EQ(v.get_string("c"), "Infinity");
  EXPECT_TRUE(v.get("d")->is_number());
  // Strings and keys in front do not confuse which word was bare.
  const JsonValue w = parse(R"(["\"", "\\", Infinity, {"Infinity": -Infinity}, "NaN"])");
  EXPECT_EQ(w.as_array()[2].as_number(), kInfinity);
  EXPECT_EQ(w.as_array()[3].get_number("Infinity"), -kInfinity);
  EXPECT_TRUE(w.as_array()[4].is_string());
}

TEST(JsonLenient, WrongTypesNameFileFieldAndBothSides) {
  const JsonValue v =
      parse(R"({"ssm_cfg": {"d_state": "many"}, "n": 16.5, "a": [1, "x"], "b": 1, "inf": Infinity,
                "huge": 1e300})");
  expect_bad_input([&] { v.get_object("ssm_cfg")->get_int("d_state"); },
                   "config.json: field 'ssm_cfg.d_state': expected an integer, got \"many\"");
  expect_bad_input([&] { v.get_int("n"); }, "field 'n': expected an integer, got 16.5");
  expect_bad_input([&] { (*v.get_array("a"))[1].as_int(); }, "field 'a[1]': expected an integer");
  expect_bad_input([&] { v.get_bool("b"); }, "expected true or false, got 1");
  expect_bad_input([&] { v.get_string("b"); }, "expected a string, got 1");
  expect_bad_input([&] { v.get_object("b"); }, "expected an object, got 1");
  expect_bad_input([&] { v.get_array("b"); }, "expected an array, got 1");
  expect_bad_input([&] { v.get_number("a"); }, "expected a number, got [1,\"x\"]");
  expect_bad_input([&] { v.get_int("inf"); }, "expected an integer, got Infinity");
  expect_bad_input([&] { v.get_int("huge"); }, "expected an integer");
  expect_bad_input([&] { v.get("b")->get("x"); }, "field 'b': expected an object");
  expect_bad_input([&] { v.get("b")->keys(); }, "expected an object");
  EXPECT_FALSE(v.get("b")->has("x"));
  // {"__float__": ..} beside other keys, or with another word, is an ordinary object.
  expect_bad_input([&] { parse(R"({"x":{"__float__":"inf","y":1}})").get_number("x"); }, "number");
  expect_bad_input([&] { parse(R"({"x":{"__float__":"1.5"}})").get_number("x"); }, "number");
}

TEST(JsonLenient, MalformedTextNamesLineAndColumn) {
  expect_bad_input([] { parse("{\n  \"a\": 1,\n  \"b\" 2\n}"); },
                   "config.json:3:7: malformed JSON");
  // A rewritten word in front does not shift the column.
  expect_bad_input([] { parse("{\"a\": Infinity, x}"); }, "config.json:1:17: malformed JSON");
  expect_bad_input([] { parse("{\"a\": [NaN, -Infinity, 1}"); }, "config.json:1:25:");
  for (const char* text : {"",
                           " ",
                           "{",
                           "[1,",
                           "\"abc",
                           "{\"a\":}",
                           "[1 2]",
                           "tru",
                           "[1]x",
                           "{1:2}",
                           "'a'",
                           "[1,]",
                           "-NaN",
                           "+Infinity",
                           "infinity",
                           "nan",
                           "01",
                           "1e999",
                           "\"\\x\"",
                           "\"\xff\"",
                           "\"\n\"",
                           "[Infinityy]",
                           "[1Infinity]",
                           "/* c */ 1",
                           "\xef\xbb",
                           "{\"a\" \"b\"}",
                           "{Infinity}"}) {
    expect_bad_input([&] { parse(text); }, "malformed JSON");
  }
  expect_bad_input([] { parse("{Infinity: 1}"); }, "a key must be a string in quotes");
  expect_bad_input([] { parse(std::string_view("{\"a\": 1}\0", 9)); },
                   ":1:9: malformed JSON: a zero");
  expect_bad_input([] { parse(std::string_view("[\"\0\"]", 5)); }, "malformed JSON");
}

TEST(JsonLenient, SkipsAByteOrderMark) {
  EXPECT_EQ(parse("\xef\xbb\xbf{\"a\": 1}").get_int("a"), 1);
  expect_bad_input([] { parse("\xef\xbb\xbf{\"a\" 1}"); }, "config.json:1:6:");
}

TEST(JsonLenient, RefusesDuplicateKeys) {
  expect_bad_input([] { parse(R"({"a": 1, "b": 2, "a": 3})"); }, "key 'a' appears twice");
  expect_bad_input([] { parse(R"([{"x": {"k": 1, "\u006b": 3}}])"); }, "key 'k' appears twice");
  EXPECT_EQ(parse(R"({"a": {"a": 1}})").get_object("a")->get_int("a"), 1);
}

TEST(JsonLenient, BoundsDepthCountAndLength) {
  const std::string deepest = std::string(64, '[') + std::string(64, ']');
  EXPECT_TRUE(parse(deepest).is_array());
  expect_bad_input([&] { parse("[" + deepest + "]"); }, "nested deeper than 64");
  expect_bad_input([] { parse(std::string(20'000'000, '[')); }, "nested deeper than 64");
  std::string many = "[0";
  for (int i = 0; i < 1'100'000; ++i) many += ",0";
  expect_bad_input([&] { parse(many + "]"); }, "more than 1000000 JSON values");
  expect_bad_input([&] { parse("\"" + std::string(17 << 20, 'x') + "\""); }, "string is longer");
  expect_bad_input([&] { parse("\"" + std::string(17 << 20, 'x')); }, "string is longer");
  expect_bad_input([&] { parse(std::string((100 << 20) + 1, ' ')); }, "at most 104857600 bytes");
}

TEST(JsonLenient, DumpReadsBackEqual) {
  const std::string text =
      R"({"a":[1,-2,0.1,true,null,"q\"\\é"],"b":{"inf":Infinity,"m":-Infinity,"n":NaN},"c":{}})";
  EXPECT_EQ(parse(text).dump(), text);
  EXPECT_EQ(parse(parse(text).dump()).dump(), text);
  EXPECT_EQ(JsonValue().dump(), "{}");
  EXPECT_FALSE(JsonValue().has("x"));
}

TEST(JsonLenient, ValuesOutliveTheirParent) {
  std::optional<JsonValue> inner;
  {
    const JsonValue v = parse(R"({"a": {"b": "text"}})");
    inner = v.get("a");
  }
  EXPECT_EQ(inner->get_string("b"), "text");
}

TEST(JsonLenient, ReadsFiles) {
  const TempDir dir;
  EXPECT_EQ(JsonValue::parse_file(dir.write("c.json", "{\"a\":1}")).get_int("a"), 1);
  expect_bad_input([&] { JsonValue::parse_file(dir.write("d.json", "{")); },
                   "d.json:1:2: malformed");
  expect_error([&] { JsonValue::parse_file(dir.path("absent.json")); }, ErrorCode::kIo,
               "absent.json");
}

}  // namespace
}  // namespace adder
