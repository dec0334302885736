// JSON schemas as read from a request: the keywords that json_schema_grammar.h can enforce.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/json_lenient.h"

namespace adder {

// Begins every message.
inline constexpr const char* kJsonSchemaName = "response_format: json_schema";

// The beginning of messages about a place in it: "response_format: json_schema: field 'a.b'".
std::string schema_place(const std::string& where);
// Throws Error(kBadInput).
[[noreturn]] void fail_schema(const std::string& where, const std::string& problem);

struct JsonSchema {
  using Ptr = std::shared_ptr<const JsonSchema>;
  enum Type : uint8_t {
    kNull = 1,
    kBoolean = 2,
    kInteger = 4,
    kNumber = 8,
    kString = 16,
    kArray = 32,
    kObject = 64
  };
  static constexpr uint32_t kUnbounded = UINT32_MAX;

  struct Value {
    std::string text;  // compact JSON
    uint8_t type;      // integer for numbers without a fraction
  };
  struct Limit {
    int64_t whole;  // rounded down
    bool has_fraction = false;
    bool excluded = false;
  };

  std::string where;   // "properties.age", for messages
  bool never = false;  // nothing satisfies it
  std::string ref;     // "#/$defs/node"; empty: none
  std::vector<Ptr> all_of, any_of;
  std::optional<uint8_t> types;              // any of these
  std::optional<std::vector<Value>> values;  // one of these

  bool has_properties = false;
  std::vector<std::pair<std::string, Ptr>> properties;
  std::vector<std::string> required;
  Ptr additional;  // of other properties; null: not said

  std::vector<Ptr> prefix_items;
  Ptr items;  // behind prefix_items; null: not said
  uint32_t min_items = 0, max_items = kUnbounded;

  uint32_t min_length = 0, max_length = kUnbounded;  // characters
  std::string pattern, format;                       // empty: none

  std::optional<Limit> low, high;  // of numbers

  bool limits_objects() const {
    return has_properties || !required.empty() || additional != nullptr;
  }
  bool limits_arrays() const {
    return !prefix_items.empty() || items != nullptr || min_items > 0 || max_items != kUnbounded;
  }
  bool limits_strings() const {
    return min_length > 0 || max_length != kUnbounded || !pattern.empty() || !format.empty();
  }
  bool limits_numbers() const { return low || high; }
  // Says nothing but perhaps ref, all_of and any_of.
  bool is_open() const {
    return !never && !types && !values && !limits_objects() && !limits_arrays() &&
           !limits_strings() && !limits_numbers();
  }
};

// What satisfies both. `ref` and `all_of` must have been resolved in both. Properties are merged by
// way of all_of. Throws Error(kBadInput) for keywords that cannot be merged.
JsonSchema merge_schemas(const JsonSchema& a, const JsonSchema& b);
// Of two lower limits the higher one, of two upper ones the lower one.
std::optional<JsonSchema::Limit> tighter_limit(const std::optional<JsonSchema::Limit>& a,
                                               const std::optional<JsonSchema::Limit>& b, bool low);

class JsonSchemaReader {
 public:
  static constexpr uint32_t kMaxSchemas = 20'000;  // read in all, those behind references too

  // Throws Error(kBadInput) for malformed JSON and more than Grammar::kMaxSource bytes.
  explicit JsonSchemaReader(std::string_view text);

  JsonSchema::Ptr root() { return resolve("#"); }
  // "#", "#/$defs/node" or any other place in the document. Throws Error(kBadInput) naming the
  // field when nothing is there, and for keywords that cannot be enforced.
  JsonSchema::Ptr resolve(const std::string& ref);

 private:
  JsonSchema::Ptr read(const JsonValue& value, const std::string& where);
  void read_keyword(JsonSchema& schema, const JsonValue& value, const std::string& key);
  void read_types(JsonSchema& schema, const JsonValue& value);
  void read_values(JsonSchema& schema, const std::vector<JsonValue>& values);
  std::vector<JsonSchema::Ptr> read_list(const JsonValue& value, const std::string& where);
  void read_limit(JsonSchema& schema, const JsonValue& value, const std::string& key);

  JsonValue document_;
  std::map<std::string, JsonSchema::Ptr> known_;
  std::map<std::string, std::vector<JsonValue>>
      arrays_;  // by place: those that references went into
  uint32_t read_ = 0;
};

}  // namespace adder
