#include "io/json_lenient.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "core/error.h"
#include "io/json_scan.h"
#include "io/mmap_file.h"
#include "io/printable.h"

namespace adder {

// nlohmann-json tokenises (its SAX interface); the tree is ours, because its own would keep the
// last of two equal keys, looks up keys of an ordered object one by one, and holds no infinity in
// text.
struct JsonValue::Node {
  using Array = std::vector<Node>;
  struct Object {
    std::vector<std::string> keys;  // in file order
    std::vector<Node> values;
    std::vector<uint32_t> by_key;  // positions ordered by key, for lookup
  };
  // Behind a pointer, so that a number takes 40 bytes and not 80.
  using ObjectPtr = std::unique_ptr<Object>;
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, ObjectPtr> value;

  template <typename T>
  const T* as() const {
    return std::get_if<T>(&value);
  }
  const Object* object() const {
    const auto* pointer = std::get_if<ObjectPtr>(&value);
    return pointer != nullptr ? pointer->get() : nullptr;
  }
  // Null when this is no object or has no such key. O(log n): an index has 100 000 keys.
  const Node* find(std::string_view key) const {
    const Object* object = this->object();
    if (object == nullptr) return nullptr;
    const auto& keys = object->keys;
    const auto it = std::lower_bound(object->by_key.begin(), object->by_key.end(), key,
                                     [&](uint32_t i, std::string_view k) { return keys[i] < k; });
    return it != object->by_key.end() && keys[*it] == key ? &object->values[*it] : nullptr;
  }
};

struct JsonValue::Document {
  std::string name;
  Node root;
};

// Receives the tokens. Open containers lie on a stack and move into their parent when they close.
class JsonValue::Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const std::string& name, const JsonScan& scan) : name_(name), scan_(scan) {}

  Node take_root() { return std::move(root_); }

  bool null() override { return add({nullptr}); }
  bool boolean(bool v) override { return add({v}); }
  bool number_integer(number_integer_t v) override { return add({static_cast<int64_t>(v)}); }
  bool number_unsigned(number_unsigned_t v) override {
    if (v > static_cast<uint64_t>(INT64_MAX)) return add({static_cast<double>(v)});
    return add({static_cast<int64_t>(v)});
  }
  bool number_float(number_float_t v, const string_t&) override { return add({v}); }
  // Bare words were put in quotes by scan_json; their place among all strings tells them apart from
  // words that the file itself quotes.
  bool string(string_t& v) override {
    const size_t ordinal = strings_++;
    if (next_bare_ < scan_.bare.size() && scan_.bare[next_bare_].string_ordinal == ordinal) {
      return add({scan_.bare[next_bare_++].value});
    }
    return add({std::move(v)});
  }
  bool binary(binary_t&) override { return false; }  // never sent for text
  bool start_object(std::size_t) override { return open({std::make_unique<Node::Object>()}); }
  bool start_array(std::size_t) override { return open({Node::Array{}}); }
  bool key(string_t& v) override {
    const size_t ordinal = strings_++;
    if (next_bare_ < scan_.bare.size() && scan_.bare[next_bare_].string_ordinal == ordinal) {
      bad_input("{}: malformed JSON: a key must be a string in quotes, got a bare {}", name_, v);
    }
    std::get<Node::ObjectPtr>(open_.back().value)->keys.push_back(std::move(v));
    return true;
  }
  // Sorting once finds duplicates and makes lookups fast, whatever the number of keys.
  bool end_object() override {
    auto& object = *std::get<Node::ObjectPtr>(open_.back().value);
    object.by_key.resize(object.keys.size());
    for (uint32_t i = 0; i < object.by_key.size(); ++i) object.by_key[i] = i;
    const auto& keys = object.keys;
    std::sort(object.by_key.begin(), object.by_key.end(),
              [&](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
    for (size_t i = 1; i < object.by_key.size(); ++i) {
      if (keys[object.by_key[i]] == keys[object.by_key[i - 1]]) {
        bad_input("{}: key {} appears twice in one object", name_,
                  printable(keys[object.by_key[i]]));
      }
    }
    return close();
  }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: <reason>"; the line and
    // column are ours, since the text may have been rewritten.
    std::string_view reason = error.what();
    if (const size_t end = reason.find("] "); end != reason.npos) reason.remove_prefix(end + 2);
    if (reason.starts_with("parse error at")) {
      if (const size_t colon = reason.find(": "); colon != reason.npos) {
        reason.remove_prefix(colon + 2);
      }
    }
    const auto [line, column] = scan_.locate(position);
    bad_input("{}:{}:{}: malformed JSON: {}", name_, line, column, shorten(reason));
  }

 private:
  // The parser's reason may quote bytes of the file.
  static std::string shorten(std::string_view reason) {
    const std::string text = printable(reason, 160);
    return text.substr(1, text.size() - 2);
  }
  bool add(Node node) {
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (auto* array = std::get_if<Node::Array>(&open_.back().value)) {
      array->push_back(std::move(node));
    } else {
      std::get<Node::ObjectPtr>(open_.back().value)->values.push_back(std::move(node));
    }
    return true;
  }
  bool open(Node node) {
    open_.push_back(std::move(node));
    return true;
  }
  bool close() {
    Node node = std::move(open_.back());
    open_.pop_back();
    return add(std::move(node));
  }

  const std::string& name_;
  const JsonScan& scan_;
  std::vector<Node> open_;
  Node root_;
  size_t strings_ = 0;    // strings and keys seen so far
  size_t next_bare_ = 0;  // next entry of scan_.bare
};

JsonValue JsonValue::parse(std::string_view text, std::string name) {
  const JsonScan scan = scan_json(text, name);
  auto document = std::make_shared<Document>();
  document->name = std::move(name);
  Builder builder(document->name, scan);
  const std::string_view body = scan.text();
  nlohmann::json::sax_parse(body.begin(), body.end(), &builder);  // errors throw
  document->root = builder.take_root();
  const Node* root = &document->root;
  return JsonValue(std::move(document), root, "");
}

JsonValue JsonValue::parse_file(const std::string& path) {
  const auto file = MappedFile::open(path);
  const auto bytes = file->bytes();
  return parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

JsonValue::JsonValue() {
  static const std::shared_ptr<const Document> empty =
      std::make_shared<const Document>(Document{"(empty)", Node{std::make_unique<Node::Object>()}});
  document_ = empty;
  node_ = &empty->root;
}

JsonValue::JsonValue(std::shared_ptr<const Document> document, const Node* node, std::string where)
    : document_(std::move(document)), node_(node), where_(std::move(where)) {}

// "config.json: field 'ssm_cfg.d_state': expected an integer, got ...", the value cut to one line.
void JsonValue::fail_type(std::string_view expected) const {
  constexpr size_t kShown = 60;
  std::string found = dump();
  if (found.size() > kShown) found = found.substr(0, kShown) + "...";
  if (where_.empty()) bad_input("{}: expected {}, got {}", name(), expected, found);
  bad_input("{}: field '{}': expected {}, got {}", name(), where_, expected, found);
}

const std::string& JsonValue::name() const {
  return document_->name;
}
bool JsonValue::is_object() const {
  return node_->object() != nullptr;
}
bool JsonValue::is_array() const {
  return node_->as<Node::Array>() != nullptr;
}
bool JsonValue::is_string() const {
  return node_->as<std::string>() != nullptr;
}
bool JsonValue::is_bool() const {
  return node_->as<bool>() != nullptr;
}
bool JsonValue::is_null() const {
  return node_->as<std::nullptr_t>() != nullptr;
}
bool JsonValue::is_number() const {
  return node_->as<int64_t>() != nullptr || node_->as<double>() != nullptr;
}
bool JsonValue::has(std::string_view key) const {
  return node_->find(key) != nullptr;
}

std::vector<std::string> JsonValue::keys() const {
  if (const auto* object = node_->object()) return object->keys;
  fail_type("an object");
}

// A value inside this one; `key` is a name or "[index]" and lengthens the path in messages.
JsonValue JsonValue::child(const Node& node, std::string_view key) const {
  const std::string shown = printable(key);
  std::string where = where_.empty() || key.starts_with('[') ? where_ : where_ + ".";
  return JsonValue(document_, &node, where.append(shown, 1, shown.size() - 2));
}

std::optional<JsonValue> JsonValue::get(std::string_view key) const {
  if (!is_object()) fail_type("an object");
  const Node* node = node_->find(key);
  if (node == nullptr) return std::nullopt;
  return child(*node, key);
}

std::optional<JsonValue> JsonValue::get_present(std::string_view key) const {
  auto value = get(key);
  if (value && value->is_null()) return std::nullopt;
  return value;
}

std::optional<int64_t> JsonValue::get_int(std::string_view key) const {
  const auto value = get_present(key);
  return value ? std::optional(value->as_int()) : std::nullopt;
}
std::optional<double> JsonValue::get_number(std::string_view key) const {
  const auto value = get_present(key);
  return value ? std::optional(value->as_number()) : std::nullopt;
}
std::optional<bool> JsonValue::get_bool(std::string_view key) const {
  const auto value = get_present(key);
  return value ? std::optional(value->as_bool()) : std::nullopt;
}
std::optional<std::string> JsonValue::get_string(std::string_view key) const {
  const auto value = get_present(key);
  return value ? std::optional(value->as_string()) : std::nullopt;
}
std::optional<JsonValue> JsonValue::get_object(std::string_view key) const {
  auto value = get_present(key);
  if (value && !value->is_object()) value->fail_type("an object");
  return value;
}
std::optional<std::vector<JsonValue>> JsonValue::get_array(std::string_view key) const {
  const auto value = get_present(key);
  return value ? std::optional(value->as_array()) : std::nullopt;
}

int64_t JsonValue::as_int() const {
  if (const auto* integer = node_->as<int64_t>()) return *integer;
  if (const auto* number = node_->as<double>()) {
    // 2^63 itself is not an int64; NaN fails both comparisons.
    if (*number >= -0x1p63 && *number < 0x1p63 && std::trunc(*number) == *number) {
      return static_cast<int64_t>(*number);
    }
  }
  fail_type("an integer");
}

// Infinity may come as a number (bare), as a word in quotes, or in transformers' {"__float__":
// word}.
double JsonValue::as_number() const {
  if (const auto* integer = node_->as<int64_t>()) return static_cast<double>(*integer);
  if (const auto* number = node_->as<double>()) return *number;
  const Node* text = node_;
  if (const auto* object = node_->object(); object && object->keys.size() == 1) {
    if (const Node* inner = node_->find("__float__")) text = inner;
  }
  if (const auto* word = text->as<std::string>()) {
    if (const auto number = special_number(*word)) return *number;
  }
  fail_type("a number");
}

bool JsonValue::as_bool() const {
  if (const auto* value = node_->as<bool>()) return *value;
  fail_type("true or false");
}

std::string JsonValue::as_string() const {
  if (const auto* text = node_->as<std::string>()) return *text;
  fail_type("a string");
}

std::vector<JsonValue> JsonValue::as_array() const {
  const auto* array = node_->as<Node::Array>();
  if (array == nullptr) fail_type("an array");
  std::vector<JsonValue> out;
  out.reserve(array->size());
  for (const Node& node : *array) out.push_back(child(node, fmt::format("[{}]", out.size())));
  return out;
}

// Recursion is as deep as the document, which parse() bounds.
void JsonValue::append(const Node& node, std::string& out) {
  if (const auto* array = node.as<Node::Array>()) {
    out += '[';
    for (const Node& item : *array) {
      if (&item != array->data()) out += ',';
      append(item, out);
    }
    out += ']';
  } else if (const auto* object = node.object()) {
    out += '{';
    for (size_t i = 0; i < object->keys.size(); ++i) {
      if (i > 0) out += ',';
      out += nlohmann::json(object->keys[i]).dump() + ":";
      append(object->values[i], out);
    }
    out += '}';
  } else if (const auto* text = node.as<std::string>()) {
    out += nlohmann::json(*text).dump();
  } else if (const auto* integer = node.as<int64_t>()) {
    out += fmt::format("{}", *integer);
  } else if (const auto* number = node.as<double>()) {
    if (std::isfinite(*number)) {
      out += nlohmann::json(*number).dump();
    } else {
      out += std::isnan(*number) ? "NaN" : *number > 0 ? "Infinity" : "-Infinity";
    }
  } else if (const auto* boolean = node.as<bool>()) {
    out += *boolean ? "true" : "false";
  } else {
    out += "null";
  }
}

std::string JsonValue::dump() const {
  std::string out;
  append(*node_, out);
  return out;
}

}  // namespace adder
