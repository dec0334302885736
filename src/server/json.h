// Strict reading of JSON bodies, and writing. Of the server's own .cc files only.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace adder {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // for answers: fields in the documented order

// The functions here throw ApiError(400); `param` is the field that the error names. Values are
// never converted: 1 is not true, "1" is not 1, and 1.0 is not an integer.

// A JSON object, nested at most 64 deep. An empty text is an empty object.
Json parse_body(std::string_view text);
// One field of an object's text with its members in the order of the text, which a JSON schema's
// properties are generated in. `body` has been parsed without an error before.
OrderedJson parse_ordered_field(std::string_view body, std::string_view name);
// A field; null when it is absent or JSON's null, which OpenAI's clients send for "not set".
const Json* find_field(const Json& object, std::string_view name);

double read_number(const Json& value, const std::string& param, double low, double high);
int64_t read_integer(const Json& value, const std::string& param, int64_t low, int64_t high);
bool read_bool(const Json& value, const std::string& param);
const std::string& read_string(const Json& value, const std::string& param);
const Json& read_array(const Json& value, const std::string& param);
const Json& read_object(const Json& value, const std::string& param);
// Token ids from 0 to limit - 1; at least one.
std::vector<int32_t> read_token_ids(const Json& value, const std::string& param, int64_t limit);

// A value for an error message, cut where it is long: "3.5", "'abc'", "an array".
std::string describe(const Json& value);

// Compact text; bytes that are not UTF-8 come out as U+FFFD.
std::string dump(const OrderedJson& value);
// `text`, which is UTF-8, as a JSON string with its quotes. For what is written once per token.
void append_json_string(std::string& out, std::string_view text);

}  // namespace adder
