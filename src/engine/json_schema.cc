#include "engine/json_schema.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "engine/grammar.h"
#include "io/printable.h"

namespace adder {
namespace {

// They describe and do not restrict.
constexpr std::array<std::string_view, 13> kAnnotations = {
    "title",   "description", "default",     "examples", "$comment",  "$schema",   "$id",
    "$anchor", "$defs",       "definitions", "readOnly", "writeOnly", "deprecated"};

constexpr std::array<std::pair<std::string_view, uint8_t>, 7> kSchemaTypes = {{
    {"null", JsonSchema::kNull},
    {"boolean", JsonSchema::kBoolean},
    {"integer", JsonSchema::kInteger},
    {"number", JsonSchema::kNumber},
    {"string", JsonSchema::kString},
    {"array", JsonSchema::kArray},
    {"object", JsonSchema::kObject},
}};

std::string path(const std::string& where, std::string_view key) {
  constexpr size_t kLongest = 200;  // every schema keeps its own
  if (where.size() > kLongest) return where.ends_with("...") ? where : where + "...";
  const std::string shown = printable(key);
  std::string longer = where.empty() ? where : where + ".";
  return longer.append(shown, 1, shown.size() - 2);
}

uint32_t read_count(const JsonValue& value, const std::string& where) {
  const int64_t count = value.as_int();
  if (count < 0 || count > Grammar::kMaxRepeat) {
    fail_schema(where,
                fmt::format("expected a count of 0 .. {}, got {}", Grammar::kMaxRepeat, count));
  }
  return static_cast<uint32_t>(count);
}

uint8_t type_of(const JsonValue& value) {
  if (value.is_null()) return JsonSchema::kNull;
  if (value.is_bool()) return JsonSchema::kBoolean;
  if (value.is_string()) return JsonSchema::kString;
  if (value.is_array()) return JsonSchema::kArray;
  if (value.is_object()) return JsonSchema::kObject;
  const double number = value.as_number();
  return std::trunc(number) == number ? JsonSchema::kInteger : JsonSchema::kNumber;
}

// Text in which JSON is strict: JsonValue also reads bare Infinity and NaN.
bool is_strict(const JsonValue& value) {
  if (value.is_array()) {
    const auto items = value.as_array();
    return std::all_of(items.begin(), items.end(), is_strict);
  }
  if (value.is_object()) {
    const auto keys = value.keys();
    return std::all_of(keys.begin(), keys.end(),
                       [&](const std::string& key) { return is_strict(*value.get(key)); });
  }
  return !value.is_number() || std::isfinite(value.as_number());
}

}  // namespace

std::string schema_place(const std::string& where) {
  return where.empty() ? kJsonSchemaName : fmt::format("{}: field '{}'", kJsonSchemaName, where);
}

void fail_schema(const std::string& where, const std::string& problem) {
  bad_input("{}: {}", schema_place(where), problem);
}

JsonSchemaReader::JsonSchemaReader(std::string_view text) {
  ADDER_CHECK(text.size() <= Grammar::kMaxSource, "{}: expected at most {} bytes, got {}",
              kJsonSchemaName, Grammar::kMaxSource, text.size());
  document_ = JsonValue::parse(text, kJsonSchemaName);
}

JsonSchema::Ptr JsonSchemaReader::resolve(const std::string& ref) {
  if (const auto known = known_.find(ref); known != known_.end()) return known->second;
  JsonValue value = document_;
  std::string where;
  for (size_t at = 1; at < ref.size();) {
    const size_t end = std::min(ref.find('/', at + 1), ref.size());
    std::string key;
    for (size_t i = at + 1; i < end; ++i) {
      if (ref[i] == '~' && i + 1 < end) {
        key += ref[++i] == '0' ? '~' : '/';
      } else {
        key += ref[i];
      }
    }
    std::optional<JsonValue> next;
    if (value.is_object()) next = value.get(key);
    if (value.is_array()) {
      auto& items = arrays_[ref.substr(0, at)];
      if (items.empty()) items = value.as_array();
      size_t index = items.size();
      const auto end_of_key = key.data() + key.size();
      const auto [stop, error] = std::from_chars(key.data(), end_of_key, index);
      if (error == std::errc() && stop == end_of_key && index < items.size()) next = items[index];
    }
    if (!next) {
      bad_input("{}: $ref: expected a place in the schema, got {}", kJsonSchemaName,
                printable(ref));
    }
    value = std::move(*next);
    where = path(where, key);
    at = end;
  }
  return known_[ref] = read(value, where);
}

JsonSchema::Ptr JsonSchemaReader::read(const JsonValue& value, const std::string& where) {
  if (++read_ > kMaxSchemas) {
    bad_input("{}: expected at most {} schemas inside it, got more", kJsonSchemaName, kMaxSchemas);
  }
  auto schema = std::make_shared<JsonSchema>();
  schema->where = where;
  if (value.is_bool()) {
    schema->never = !value.as_bool();
  } else if (value.is_object()) {
    for (const std::string& key : value.keys()) read_keyword(*schema, *value.get(key), key);
  } else {
    fail_schema(where,
                "expected a schema (an object, true or false), got " + printable(value.dump(), 60));
  }
  return schema;
}

std::vector<JsonSchema::Ptr> JsonSchemaReader::read_list(const JsonValue& value,
                                                         const std::string& where) {
  std::vector<JsonSchema::Ptr> schemas;
  for (const JsonValue& item : value.as_array()) {
    schemas.push_back(read(item, fmt::format("{}[{}]", where, schemas.size())));
  }
  if (schemas.empty()) fail_schema(where, "expected at least one schema, got none");
  return schemas;
}

void JsonSchemaReader::read_keyword(JsonSchema& schema, const JsonValue& value,
                                    const std::string& key) {
  const std::string where = path(schema.where, key);
  if (std::find(kAnnotations.begin(), kAnnotations.end(), key) != kAnnotations.end()) return;
  if (key == "type") {
    read_types(schema, value);
  } else if (key == "enum") {
    read_values(schema, value.as_array());
  } else if (key == "const") {
    read_values(schema, {value});
  } else if (key == "anyOf" || key == "oneOf") {
    if (!schema.any_of.empty()) fail_schema(where, "anyOf beside oneOf is not supported");
    schema.any_of = read_list(value, where);
  } else if (key == "allOf") {
    schema.all_of = read_list(value, where);
  } else if (key == "$ref") {
    schema.ref = value.as_string();
    if (schema.ref != "#" && !schema.ref.starts_with("#/")) {
      fail_schema(where, fmt::format("{} is not supported, only places in this schema are: '#/...'",
                                     printable(schema.ref)));
    }
  } else if (key == "properties") {
    schema.has_properties = true;
    for (const std::string& name : value.keys()) {
      schema.properties.emplace_back(name, read(*value.get(name), path(where, name)));
    }
  } else if (key == "required") {
    for (const JsonValue& name : value.as_array()) schema.required.push_back(name.as_string());
  } else if (key == "additionalProperties") {
    schema.additional = read(value, where);
  } else if (key == "items") {
    schema.items = read(value, where);
  } else if (key == "prefixItems") {
    schema.prefix_items = read_list(value, where);
  } else if (key == "minItems") {
    schema.min_items = read_count(value, where);
  } else if (key == "maxItems") {
    schema.max_items = read_count(value, where);
  } else if (key == "uniqueItems") {
    if (value.as_bool()) fail_schema(where, "true is not supported");
  } else if (key == "minLength") {
    schema.min_length = read_count(value, where);
  } else if (key == "maxLength") {
    schema.max_length = read_count(value, where);
  } else if (key == "pattern") {
    schema.pattern = value.as_string();
  } else if (key == "format") {
    schema.format = value.as_string();
  } else if (key == "minimum" || key == "maximum" || key == "exclusiveMinimum" ||
             key == "exclusiveMaximum") {
    read_limit(schema, value, key);
  } else {
    fail_schema(where, printable(key) + " is not supported");
  }
}

void JsonSchemaReader::read_types(JsonSchema& schema, const JsonValue& value) {
  uint8_t types = 0;
  const auto add = [&](const JsonValue& name) {
    const std::string text = name.as_string();
    const auto found = std::find_if(kSchemaTypes.begin(), kSchemaTypes.end(),
                                    [&](const auto& type) { return type.first == text; });
    if (found == kSchemaTypes.end()) {
      fail_schema(path(schema.where, "type"),
                  "expected null, boolean, integer, number, string, array or object, got " +
                      printable(text));
    }
    types |= found->second;
  };
  if (value.is_array()) {
    for (const JsonValue& name : value.as_array()) add(name);
  } else {
    add(value);
  }
  schema.types = types;
}

void JsonSchemaReader::read_values(JsonSchema& schema, const std::vector<JsonValue>& values) {
  std::vector<JsonSchema::Value> read;
  for (const JsonValue& value : values) {
    if (!is_strict(value)) {
      fail_schema(schema.where, "expected values of JSON, got " + printable(value.dump(), 60));
    }
    read.push_back({value.dump(), type_of(value)});
  }
  if (schema.values) {  // enum beside const
    std::erase_if(read, [&](const JsonSchema::Value& v) {
      return std::none_of(schema.values->begin(), schema.values->end(),
                          [&](const JsonSchema::Value& other) { return other.text == v.text; });
    });
  }
  schema.values = std::move(read);
}

void JsonSchemaReader::read_limit(JsonSchema& schema, const JsonValue& value,
                                  const std::string& key) {
  if (!value.is_number() || !std::isfinite(value.as_number())) {
    fail_schema(path(schema.where, key), "expected a number, got " + printable(value.dump(), 60));
  }
  // No number that is written comes near this.
  constexpr double kFar = 2e18;
  const double number = std::clamp(value.as_number(), -kFar, kFar);
  const double whole = std::floor(number);
  JsonSchema::Limit limit{static_cast<int64_t>(whole), whole != number, key[0] == 'e'};
  // Integers of more than 53 bits are not rounded.
  if (std::abs(number) < kFar && whole == number) limit.whole = value.as_int();
  // It may stand beside the exclusive one.
  const bool is_low = key.ends_with("inimum");
  auto& target = is_low ? schema.low : schema.high;
  target = tighter_limit(target, limit, is_low);
}

}  // namespace adder
