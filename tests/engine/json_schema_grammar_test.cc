#include "engine/json_schema_grammar.h"

#include "grammar_testing.h"
#include "json_schema_validator.h"

namespace adder {
namespace {

using testing::all_texts;
using testing::byte_vocabulary;
using testing::expect_refused;
using testing::GrammarPtr;
using testing::json_vocabulary;
using testing::matches;
using testing::Rng;
using testing::VocabularyPtr;
using Json = nlohmann::json;
using Texts = std::set<std::string>;

// Whether blanks outside of strings stand alone behind a comma or colon.
bool has_sparse_blanks(const std::string& text) {
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inside && c == '\\') {
      ++i;
    } else if (c == '"') {
      inside = !inside;
    } else if (!inside && (c == ' ' || c == '\n' || c == '\t' || c == '\r')) {
      if (c != ' ' || i == 0 || (text[i - 1] != ',' && text[i - 1] != ':')) return false;
    }
  }
  return true;
}

const std::vector<std::string>& schemas() {
  static const std::vector<std::string> all = {
      R"(true)",
      R"({})",
      R"({"type": "object"})",
      R"({"type": ["string", "null", "integer"], "maxLength": 5, "title": "T", "default": 3})",
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"},
          "c": {"type": "null"}}, "required": ["b"], "additionalProperties": false})",
      R"({"type": "object", "properties": {"a": {"type": "number"}, "b": {}, "ab": true}})",
      R"({"type": "object", "properties": {"a": {"type": "number"}, "name": {"type": "string"},
          "né": {"const": 1}, "q\"": {"const": 2}},
          "additionalProperties": {"type": "boolean"}, "required": ["z", "name"]})",
      R"({"type": "object", "required": ["x", "y", "x"]})",
      R"({"additionalProperties": {"type": "array", "items": {"type": "string"}}})",
      R"({"type": "array", "items": {"enum": ["x", 1, null, {"a": [1, 2.5]}]}, "minItems": 2,
          "maxItems": 4})",
      R"({"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}]})",
      R"({"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}],
          "items": {"type": "integer"}, "minItems": 1, "maxItems": 5})",
      R"({"prefixItems": [{"type": "null"}], "minItems": 3})",
      R"({"type": "array", "items": false})",
      R"({"anyOf": [{"type": "string", "minLength": 2, "maxLength": 3}, {"type": "boolean"}]})",
      R"({"oneOf": [{"$ref": "#/definitions/a"}, {"$ref": "#/definitions/b"}],
          "definitions": {"a": {"type": "object", "properties": {"k": {"const": "a"}},
          "required": ["k"]}, "b": {"type": "object", "properties": {"k": {"const": "b"},
          "n": {"$ref": "#"}}, "required": ["k", "n"]}}})",
      R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
          "value": {"type": "integer"}, "children": {"type": "array", "items":
          {"$ref": "#/$defs/node"}}, "next": {"anyOf": [{"$ref": "#/$defs/node"},
          {"type": "null"}]}}, "required": ["value", "next"], "additionalProperties": false}}})",
      R"({"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"type": "string"},
          "a": {"minimum": 3}}, "required": ["b"]}], "$defs": {"base": {"type": "object",
          "properties": {"a": {"type": "integer", "maximum": 12}}, "required": ["a"]}}})",
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
          "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
      R"({"properties": {"n": {"$ref": "#/$defs/n", "description": "d"}},
          "$defs": {"n": {"type": "number", "minimum": -2, "exclusiveMaximum": 7}}})",
      R"({"type": "integer", "minimum": -37, "maximum": 1205})",
      R"({"type": "integer", "exclusiveMinimum": 7})",
      R"({"type": "integer", "exclusiveMaximum": -99.5})",
      R"({"type": "number", "minimum": 0, "maximum": 1})",
      R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})",
      R"({"type": "number", "exclusiveMinimum": -123, "maximum": -7})",
      R"({"type": "number", "exclusiveMinimum": 99999, "exclusiveMaximum": 100001})",
      R"({"type": "number", "minimum": 12})",
      R"({"type": "string", "minLength": 3, "maxLength": 3})",
      R"({"type": "string", "pattern": "^[a-z]{2,4}(-\\d+)?$"})",
      R"({"type": "string", "pattern": "^\\w+@(a|bc?)\\.com$"})",
      R"({"type": "string", "pattern": "x[^a-z]y"})",
      R"({"type": "string", "pattern": "^(?:\\\\|\"|/|\\n)*$|^z"})",
      R"({"type": "string", "format": "date"})",
      R"({"type": "string", "format": "time"})",
      R"({"type": "string", "format": "date-time"})",
      R"({"type": "string", "format": "uuid"})",
      R"({"const": {"a": ["ü\n", -0.5, 1e100, 12345678901234567]}})",
      R"({"type": "object", "properties": {"a~/b": {"type": "array", "items": {"type": "null"}},
          "c": {"$ref": "#/properties/a~0~1b"}, "d": {"$ref": "#/anyOf/1/properties/e"}},
          "anyOf": [{}, {"properties": {"e": {"const": 5}}}]})",
  };
  return all;
}

void check_walks(const VocabularyPtr& vocabulary, int walks, int random_tokens) {
  Rng rng(21);
  for (const std::string& text : schemas()) {
    SCOPED_TRACE(text);
    const GrammarMatcher matcher(json_schema_grammar(text), vocabulary);
    const testing::SchemaValidator validator(Json::parse(text));
    for (int walk = 0; walk < walks; ++walk) {
      const std::string document = testing::random_text(matcher, vocabulary, rng, random_tokens);
      ASSERT_TRUE(Json::accept(document)) << document;
      ASSERT_TRUE(validator.valid(Json::parse(document))) << document;
      ASSERT_TRUE(has_sparse_blanks(document)) << document;
    }
  }
}

TEST(JsonSchemaGrammar, WalksSatisfyTheSchemaInBytes) {
  check_walks(byte_vocabulary(), 60, 60);
}
TEST(JsonSchemaGrammar, WalksSatisfyTheSchemaInTokens) {
  check_walks(json_vocabulary(), 60, 25);
}
TEST(JsonSchemaGrammar, WalksSatisfyTheSchemaInTokensOfNeoX) {
  const VocabularyPtr vocabulary = testing::neox_vocabulary();
  if (vocabulary == nullptr) GTEST_SKIP() << "missing tokenizers/20B_tokenizer.json";
  check_walks(vocabulary, 2, 8);
}

TEST(JsonSchemaGrammar, AnyObject) {
  const GrammarPtr grammar = json_object_grammar();
  EXPECT_EQ(grammar, json_object_grammar());
  for (const char* text :
       {"{}", R"({"a":1})", R"({"a": 1, "b":[]})", R"({"":{"x":[{},[[]],null,true,false,"é😀"]}})",
        R"({"n":[0,-0,1.5,-1.25e-7,12E+3,1234567890123456]})",
        R"({"e":"\"\\\/\b\f\n\r\t\u00e9\uABCD\ud83d\ude00"})"}) {
    EXPECT_TRUE(Json::accept(text)) << text;
    EXPECT_TRUE(matches(grammar, text)) << text;
  }
  for (const char* text : {"",
                           "[]",
                           "1",
                           "{",
                           " {}",
                           "{} ",
                           "{ }",
                           R"({"a" :1})",
                           R"({"a":  1})",
                           "{\"a\":\n1}",
                           R"({"a":1,})",
                           R"({,})",
                           R"({a:1})",
                           R"({'a':1})",
                           R"({"a":01})",
                           R"({"a":1.})",
                           R"({"a":.5})",
                           R"({"a":+1})",
                           R"({"a":NaN})",
                           R"({"a":"\x"})",
                           R"({"a":"\u12"})",
                           R"({"a":"\ud83d"})",
                           R"({"a":"\ude00"})",
                           R"({"a":"\ud83dx"})",
                           R"({"a":"\ud83d\u0041"})",
                           "{\"a\":\"\n\"}",
                           "{\"a\":\"\x1f\"}",
                           "{\"a\":\"\xff\"}",
                           "{\"a\":\"\xed\xa0\x80\"}",
                           "{\"a\":\"\xc3\"}"}) {
    EXPECT_FALSE(matches(grammar, text)) << text;
  }
  Rng rng(4);
  for (int walk = 0; walk < 200; ++walk) {
    const std::string text = testing::random_text(GrammarMatcher(grammar, byte_vocabulary()),
                                                  byte_vocabulary(), rng, 80);
    ASSERT_TRUE(Json::parse(text).is_object()) << text;
  }
}

TEST(JsonSchemaGrammar, WritesEveryCombinationOfProperties) {
  const auto keys_of = [](const std::string& schema) {
    Texts texts;
    for (const std::string& text : all_texts(json_schema_grammar(schema))) {
      EXPECT_TRUE(has_sparse_blanks(text));
      if (text.find(' ') == std::string::npos) texts.insert(text);
    }
    return texts;
  };
  EXPECT_EQ(keys_of(R"({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}})"),
            (Texts{"{}", R"({"a":1})", R"({"b":2})", R"({"c":3})", R"({"a":1,"b":2})",
                   R"({"a":1,"c":3})", R"({"b":2,"c":3})", R"({"a":1,"b":2,"c":3})"}));
  EXPECT_EQ(
      keys_of(R"({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}},
                        "required": ["b"]})"),
      (Texts{R"({"b":2})", R"({"a":1,"b":2})", R"({"b":2,"c":3})", R"({"a":1,"b":2,"c":3})"}));
  EXPECT_EQ(keys_of(R"({"properties": {"a": {"const": 1}, "no": false, "b": {"const": 2}},
                        "required": ["a", "b"]})"),
            (Texts{R"({"a":1,"b":2})"}));
  EXPECT_EQ(keys_of(R"({"properties": {}})"), Texts{"{}"});
  EXPECT_EQ(keys_of(R"({"prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3},
                        "maxItems": 4})"),
            (Texts{"[]", "[1]", "[1,2]", "[1,2,3]", "[1,2,3,3]"}));
  EXPECT_EQ(keys_of(R"({"items": {"const": 3}, "maxItems": 2, "minItems": 1})"),
            (Texts{"[3]", "[3,3]"}));
  EXPECT_EQ(keys_of(R"({"items": {"const": 3}, "maxItems": 0})"), Texts{"[]"});
  EXPECT_EQ(keys_of(R"({"type": ["boolean", "null"], "enum": [true, null, 1, "a"]})"),
            (Texts{"true", "null"}));
  EXPECT_EQ(keys_of(R"({"type": "number", "enum": [1, 2.5, "a"], "const": 1})"), Texts{"1"});
}

TEST(JsonSchemaGrammar, OtherPropertiesDoNotRepeatNames) {
  const GrammarPtr grammar = json_schema_grammar(
      R"({"properties": {"a": {"const": 1}, "ab": {"const": 2}, "é": {"const": 3}},
          "additionalProperties": {"const": 4}})");
  for (const char* text : {R"({"a":1})", R"({"a":1,"ab":2,"é":3,"x":4})", R"({"b":4})", R"({"":4})",
                           R"({"abc":4,"aa":4,"éé":4,"è":4,"中":4,"a b":4})"}) {
    EXPECT_TRUE(matches(grammar, text)) << text;
  }
  for (const char* text : {R"({"a":4})", R"({"ab":4})", R"({"é":4})", R"({"x":4,"a":4})",
                           R"({"\u0061":4})", R"({"x":1})", R"({"x":4,"a":1})"}) {
    EXPECT_FALSE(matches(grammar, text)) << text;
  }
  // None are written where the schema names some and says nothing of others.
  EXPECT_FALSE(matches(json_schema_grammar(R"({"properties": {"a": {}}})"), R"({"b":1})"));
  EXPECT_TRUE(matches(json_schema_grammar(R"({"properties": {"a": {}},
                      "additionalProperties": true})"),
                      R"({"b":1})"));
  EXPECT_TRUE(matches(json_schema_grammar(R"({"required": ["a"]})"), R"({"a":[],"b":1})"));
}

TEST(JsonSchemaGrammar, IntegersLieBetweenTheirLimits) {
  Rng rng(8);
  for (int round = 0; round < 200; ++round) {
    const int64_t low = rng.below(2500) - 1200;
    const int64_t high = low + rng.below(round % 2 == 0 ? 30 : 2000);
    const GrammarPtr grammar =
        json_schema_grammar(Json{{"type", "integer"}, {"minimum", low}, {"maximum", high}}.dump());
    for (int64_t x = low - 12; x <= high + 12; x += x < low + 12 || x > high - 12 ? 1 : 7) {
      ASSERT_EQ(matches(grammar, std::to_string(x)), low <= x && x <= high)
          << x << " in " << low << " .. " << high;
    }
    for (const char* text : {"-0", "00", "01", "1.0", "1e1", "", "-"}) {
      ASSERT_FALSE(matches(grammar, text)) << text;
    }
  }
  const GrammarPtr wide =
      json_schema_grammar(R"({"type": "integer", "minimum": 9007199254740993})");
  EXPECT_FALSE(matches(wide, "9007199254740992"));
  EXPECT_TRUE(matches(wide, "9007199254740993"));
  EXPECT_TRUE(matches(wide, "999999999999999999"));
  EXPECT_FALSE(matches(wide, "1000000000000000000"));
}

TEST(JsonSchemaGrammar, NumbersLieBetweenTheirLimits) {
  Rng rng(10);
  for (int round = 0; round < 300; ++round) {
    const int64_t low = rng.below(60) - 30, high = low + rng.below(40);
    const bool open_low = rng.below(2) == 0, open_high = rng.below(2) == 0;
    const std::string schema = Json{
        {"type", "number"},
        {open_low ? "exclusiveMinimum" : "minimum", low},
        {open_high ? "exclusiveMaximum" : "maximum",
         high}}.dump();
    if (low == high && (open_low || open_high)) {
      expect_refused("something satisfies", [&] { json_schema_grammar(schema); });
      continue;
    }
    const GrammarPtr grammar = json_schema_grammar(schema);
    for (int64_t tenths = low * 10 - 15; tenths <= high * 10 + 15; ++tenths) {
      const std::string text = fmt::format("{}{}.{}", tenths < 0 ? "-" : "", std::abs(tenths) / 10,
                                           std::abs(tenths) % 10);
      const bool inside = (open_low ? tenths > low * 10 : tenths >= low * 10) &&
                          (open_high ? tenths < high * 10 : tenths <= high * 10);
      ASSERT_EQ(matches(grammar, text), inside) << text << " for " << schema;
      if (tenths % 10 == 0) {
        ASSERT_EQ(matches(grammar, text.substr(0, text.size() - 2)), inside) << text << schema;
      }
    }
  }
}

TEST(JsonSchemaGrammar, StringsHaveTheirLengthInCharacters) {
  const GrammarPtr grammar =
      json_schema_grammar(R"({"type": "string", "minLength": 2, "maxLength": 3})");
  for (const char* text : {R"("ab")", R"("é中")", R"("😀\n\u00e9")", R"("\ud83d\ude00a")"}) {
    EXPECT_TRUE(matches(grammar, text)) << text;
  }
  for (const char* text : {R"("a")", R"("é")", R"("\ud83d\ude00")", R"("abcd")", R"("")"}) {
    EXPECT_FALSE(matches(grammar, text)) << text;
  }
}

TEST(JsonSchemaGrammar, PatternsAreSearchedAndWrittenAsJson) {
  const auto match = [](const std::string& pattern, const std::string& value) {
    return matches(json_schema_grammar(Json{{"type", "string"}, {"pattern", pattern}}.dump()),
                   Json(value).dump());
  };
  const std::vector<std::string> values = {
      "",   "a",   "b",    "ab",  "aab",  "ba",   "abc",  "a1",   "1",   "-", "a-b", "\n",
      "\"", "\\",  "a\"b", "/",   "é",    "aéb",  "\t",   " ",    "_",   "^", "$",   "]",
      ".",  "a.b", "ABC",  "aaa", "aaaa", "0x1f", "a\nb", "\x01", "a\\", "{", "}",   "x\"y"};
  for (const char* pattern : {"^a$",
                              "a",
                              "^a|b$",
                              "^(a|b)+$",
                              "^a*b?$",
                              "^[^a]$",
                              "^[\\d\\-]$",
                              "\\d",
                              "^\\D*$",
                              "^\\s$",
                              "^\\S+$",
                              "^\\w+$",
                              "\\W",
                              "^.$",
                              "^[\"\\\\]$",
                              "^a{3}$",
                              "^a{2,}$",
                              "^a{1,2}?$",
                              "^\\.$",
                              "^[.]$",
                              "^\\x61\\u0062$",
                              "^[\\n\\t]$",
                              "^(?:a(b(c)?)?)?$",
                              "",
                              "^",
                              "$",
                              "^$",
                              "^\\/$",
                              "^[a-c0-9]+$",
                              "^[-a]+$",
                              "^[\\]]$",
                              "^\\^|\\$$",
                              "^[A-Z]+$",
                              "^\\{|\\}$"}) {
    const std::regex regex(pattern);
    for (const std::string& value : values) {
      // std::regex takes bytes for characters.
      const bool ascii = std::all_of(value.begin(), value.end(), [](char c) { return c > 0; });
      if (!ascii) continue;
      EXPECT_EQ(match(pattern, value), std::regex_search(value, regex))
          << pattern << " on " << Json(value).dump();
    }
  }
  EXPECT_TRUE(match("^.{2}$", "é中"));
  EXPECT_TRUE(match("^[à-ÿ]$", "é"));
  EXPECT_FALSE(match("^[à-ÿ]$", "e"));
  EXPECT_TRUE(match("^\\W$", "é"));
  EXPECT_TRUE(match("^\\s$", "\u2028"));
  EXPECT_FALSE(match("^.$", "\u2028"));
}

TEST(JsonSchemaGrammar, DatesAreOnTheCalendar) {
  const GrammarPtr grammar = json_schema_grammar(R"({"type": "string", "format": "date"})");
  for (const char* date : {"2024-02-29", "2000-02-29", "1999-12-31", "2023-04-30", "0004-02-29"}) {
    EXPECT_TRUE(matches(grammar, fmt::format("\"{}\"", date))) << date;
  }
  for (const char* date : {"2023-02-29", "1900-02-29", "2023-04-31", "2023-13-01", "2023-00-01",
                           "2023-01-00", "2023-1-1", "23-01-01"}) {
    EXPECT_FALSE(matches(grammar, fmt::format("\"{}\"", date))) << date;
  }
}

TEST(JsonSchemaGrammar, RefusesWhatItCannotEnforce) {
  const auto refused = [](const std::string& schema, const std::string& message) {
    expect_refused("response_format: json_schema: ", [&] { json_schema_grammar(schema); });
    expect_refused(message, [&] { json_schema_grammar(schema); });
  };
  refused(R"({"properties": {"a": {"multipleOf": 2}}})",
          "field 'properties.a.multipleOf': 'multipleOf' is not supported");
  refused(R"({"not": {}})", "field 'not': 'not' is not supported");
  refused(R"({"anyOf": [{"if": true}]})", "field 'anyOf[0].if': 'if' is not supported");
  refused(R"({"patternProperties": {}})", "field 'patternProperties'");
  refused(R"({"uniqueItems": true})", "field 'uniqueItems': true is not supported");
  refused(R"({"format": "email"})", "format 'email' is not supported, only date");
  refused(R"({"minLength": 2, "pattern": "a"})", "minLength or maxLength beside pattern");
  refused(R"({"type": "number", "minimum": 0.5})", "limits of a number that are not whole");
  refused(R"({"enum": [1], "minimum": 0})", "enum or const beside");
  refused(R"({"anyOf": [{}], "oneOf": [{}]})", "field 'oneOf': anyOf beside oneOf");
  refused(R"({"anyOf": [{}], "allOf": [{"anyOf": [{}]}, {"type": "null"}]})",
          "anyOf or oneOf here and in");
  refused(R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", "a pattern here and in");
  refused(R"({"allOf": [{"prefixItems": [true]}, {"items": true}]})", "prefixItems beside items");
  refused(R"({"$ref": "http://x/y"})", "field '$ref': 'http://x/y' is not supported");
  refused(R"({"maxLength": 20000})",
          "field 'maxLength': expected a count of 0 .. 10000, got 20000");
  for (const char* pattern : {"(?=a)", "(?<n>a)", "\\\\bx", "\\\\1", "\\\\p{L}", "a(^b)", "[b-a]",
                              "a{2,1}", "*", "(a", "a)", "[a", "a**", "\\\\", "[]", "\\\\ud800"}) {
    refused(fmt::format(R"({{"type": "string", "pattern": "{}"}})", pattern), "pattern '");
  }
}

TEST(JsonSchemaGrammar, SaysWhatIsMalformed) {
  const auto refused = [](const std::string& schema, const std::string& message) {
    expect_refused("response_format: json_schema", [&] { json_schema_grammar(schema); });
    expect_refused(message, [&] { json_schema_grammar(schema); });
  };
  refused("", "malformed JSON");
  refused("{", "malformed JSON");
  refused("[]", "expected a schema (an object, true or false), got '[]'");
  refused(R"({"properties": {"a": 1}})", "field 'properties.a': expected a schema");
  refused(R"({"type": "text"})", "field 'type': expected null, boolean, integer");
  refused(R"({"type": 1})", "field 'type': expected a string, got 1");
  refused(R"({"required": "a"})", "field 'required': expected an array");
  refused(R"({"minItems": -1})", "field 'minItems': expected a count of 0 .. 10000, got -1");
  refused(R"({"minItems": 1.5})", "field 'minItems': expected an integer, got 1.5");
  refused(R"({"minimum": "1"})", "field 'minimum': expected a number");
  refused(R"({"exclusiveMinimum": true})", "field 'exclusiveMinimum': expected a number");
  refused(R"({"enum": [NaN]})", "expected values of JSON");
  refused(R"({"anyOf": []})", "field 'anyOf': expected at least one schema, got none");
  refused(R"({"$ref": "#/$defs/x"})", "$ref: expected a place in the schema, got '#/$defs/x'");
  refused(R"({"a": 1, "a": 2})", "key 'a' appears twice");
}

TEST(JsonSchemaGrammar, RefusesWhatNothingSatisfies) {
  const auto refused = [](const std::string& schema, const std::string& message) {
    expect_refused(message, [&] { json_schema_grammar(schema); });
  };
  const std::string nothing = "expected a schema that something satisfies";
  refused("false", nothing);
  refused(R"({"type": []})", nothing);
  refused(R"({"enum": []})", nothing);
  refused(R"({"type": "string", "const": 1})", nothing);
  refused(R"({"minItems": 3, "maxItems": 2})", nothing);
  refused(R"({"minLength": 3, "maxLength": 2})", nothing);
  refused(R"({"type": "integer", "minimum": 3, "maximum": 2})", nothing);
  refused(R"({"type": "integer", "minimum": 1.1, "maximum": 1.9})", nothing);
  refused(R"({"type": "integer", "minimum": 1e300})", nothing);
  refused(R"({"properties": {"a": false}, "required": ["a"]})", nothing);
  refused(R"({"allOf": [{"type": "string"}, {"type": "number"}]})", nothing);
  refused(R"({"properties": {"a": {}}, "required": ["b"], "additionalProperties": false})",
          "expected 'b', which is required, among the properties");
  // Without an end.
  refused(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "can never be completed");
  refused(R"({"$ref": "#"})", "begins with itself");
  refused(R"({"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}],
             "$defs": {"a": {"anyOf": [{"$ref": "#"}]}}})",
          "begins with itself");
}

TEST(JsonSchemaGrammar, BoundsWhatHostileSchemasCost) {
  const auto refused = [](const std::string& schema, const std::string& message) {
    expect_refused(message, [&] { json_schema_grammar(schema); });
  };
  refused("{\"title\":\"" + std::string(70'000, 'x') + "\"}", "expected at most 65536 bytes");
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += "{\"items\":";
  refused(deep, "levels");
  refused(R"({"allOf": [{"$ref": "#"}, {"type": "object"}]})",
          "expected at most 64 schemas inside each other");
  refused(R"({"type": "object", "anyOf": [{"$ref": "#"}]})", "schemas inside each other");
  refused(R"({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {
             "l": {"$ref": "#/$defs/n", "minItems": 1}, "r": {"$ref": "#/$defs/n", "minItems": 1}}}}})",
          "schemas inside each other");
  // A chain of references is no recursion.
  std::string chain = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (int i = 0; i < 1200; ++i) {
    chain += fmt::format(R"("d{}": {{"items": {{"$ref": "#/$defs/d{}"}}}}, )", i, i + 1);
  }
  EXPECT_TRUE(matches(json_schema_grammar(chain + R"("d1200": {"type": "null"}}})"), "[[],[]]"));
  // A big object written once more for every branch.
  std::string wide = R"({"properties": {)";
  for (int i = 0; i < 2000; ++i) wide += fmt::format(R"({}"p{}": {{}})", i > 0 ? "," : "", i);
  wide += R"(}, "anyOf": [{})";
  for (int i = 0; i < 8000; ++i) wide += ",{}";
  refused(wide + "]}", "smaller when");
  std::string names = R"({"additionalProperties": {"type": "null"}, "properties": {)";
  for (int i = 0; i < 200; ++i) {
    names += fmt::format(R"({}"{}{}": {{}})", i > 0 ? "," : "", std::string(240, 'n'), i);
  }
  refused(names + R"(}, "anyOf": [{}, {"required": ["a"]}, {}, {}, {}, {}, {}]})", "smaller when");
}

}  // namespace
}  // namespace adder
