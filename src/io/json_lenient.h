// JSON as it is found in checkpoints: strict JSON plus bare Infinity, -Infinity and NaN, the same
// as strings, and {"__float__": "Infinity"}.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adder {

// A read-only JSON value; copies share the parsed document. Typed getters return nothing when the
// key is absent or null, and throw Error(kBadInput) naming file, field, the type that was expected
// and the value that was found when it has another type.
class JsonValue {
 public:
  JsonValue();  // an empty object

  // `name` is the file name used in messages. A byte order mark in front is skipped. Throws
  // Error(kBadInput) with line and column on malformed text, and on duplicate keys, nesting deeper
  // than 64 levels, more than 100 MB of text, 1 million values and keys, or a string over 16 MB.
  static JsonValue parse(std::string_view text, std::string name);
  static JsonValue parse_file(const std::string& path);

  const std::string& name() const;
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool is_number() const;  // a number as written; "Infinity" in quotes is a string
  bool is_bool() const;
  bool is_null() const;
  bool has(std::string_view key) const;   // false when this is no object
  std::vector<std::string> keys() const;  // of an object, in file order

  std::optional<int64_t> get_int(std::string_view key) const;  // accepts 16.0, refuses 16.5
  // Numbers, "Infinity", "-Infinity", "inf", "-inf", "NaN", and {"__float__": one of these}.
  std::optional<double> get_number(std::string_view key) const;
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::string> get_string(std::string_view key) const;
  std::optional<JsonValue> get_object(std::string_view key) const;
  std::optional<std::vector<JsonValue>> get_array(std::string_view key) const;
  // Any type; nothing when absent (null gives a null value).
  std::optional<JsonValue> get(std::string_view key) const;

  // The value itself; same rules.
  int64_t as_int() const;
  double as_number() const;
  bool as_bool() const;
  std::string as_string() const;
  std::vector<JsonValue> as_array() const;
  // Compact text that parse() reads back to the same value; not-a-finite numbers are bare.
  std::string dump() const;

 private:
  struct Node;
  struct Document;
  class Builder;
  static void append(const Node& node, std::string& out);
  JsonValue(std::shared_ptr<const Document> document, const Node* node, std::string where);
  [[noreturn]] void fail_type(std::string_view expected) const;
  JsonValue child(const Node& node, std::string_view key) const;
  // The value under a key, nothing when it is absent or null.
  std::optional<JsonValue> get_present(std::string_view key) const;

  std::shared_ptr<const Document> document_;
  const Node* node_ = nullptr;
  std::string where_;  // "ssm_cfg.layer", for messages
};

}  // namespace adder
