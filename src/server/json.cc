#include "server/json.h"

#include <algorithm>
#include <limits>

#include "server/api_error.h"

namespace adder {
namespace {

// Deeper nesting has no use in a request, and what walks a tree later may do so recursively.
constexpr int kMaxDepth = 64;
// A tree takes 16 bytes and more for each of them, and as much again while it is taken down.
constexpr int64_t kMaxValues = 1'000'000;
constexpr size_t kQuoted = 60;  // bytes of a value in a message

// Goes through a JSON text outside of its strings. Of a text that is no JSON it makes something
// too.
class TextWalk {
 public:
  explicit TextWalk(std::string_view text) : text_(text) {}

  // To the next character that is not inside of a string; false at the end.
  bool next() {
    position_ += started_ ? 1 : 0;
    started_ = true;
    if (began_string()) skip_string();
    if (position_ >= text_.size()) return false;
    const char c = text_[position_];
    depth_ += c == '{' || c == '[' ? 1 : 0;
    depth_ -= c == '}' || c == ']' ? 1 : 0;
    in_string_ = c == '"';
    return true;
  }
  size_t position() const { return position_; }
  bool at(char c) const { return text_[position_] == c; }
  bool began_string() const { return in_string_; }  // at the quote in front of one
  int depth() const { return depth_; }              // of the brackets around, this one included

 private:
  void skip_string() {  // from behind the quote in front to behind the one at the end
    while (position_ < text_.size() && text_[position_] != '"') {
      position_ += text_[position_] == '\\' ? 2 : 1;
    }
    ++position_;
    in_string_ = false;
  }

  std::string_view text_;
  size_t position_ = 0;
  int depth_ = 0;
  bool started_ = false, in_string_ = false;
};

// Refuses what would become too deep or too large a tree, before there is one.
void check_size(std::string_view text) {
  int64_t values = 1;
  for (TextWalk walk(text); walk.next();) {
    if (walk.depth() > kMaxDepth) {
      throw ApiError(400, fmt::format("body: expected JSON nested at most {} deep", kMaxDepth));
    }
    const bool one_more = !walk.began_string() && (walk.at(',') || walk.at('[') || walk.at('{'));
    values += one_more ? 1 : 0;
  }
  if (values > kMaxValues) {
    throw ApiError(400, fmt::format("body: expected JSON of at most {} values, got more; a long "
                                    "prompt is smaller as text",
                                    kMaxValues));
  }
}

}  // namespace

Json parse_body(std::string_view text) {
  if (text.empty()) return Json::object();
  check_size(text);  // not by the parser's callback, with which it takes quadratic time
  try {
    Json body = Json::parse(text);
    if (!body.is_object()) {
      throw ApiError(400, "body: expected a JSON object, got " + describe(body));
    }
    return body;
  } catch (const Json::parse_error& e) {
    throw ApiError(400,
                   fmt::format("body: expected JSON in UTF-8, got an error at byte {}", e.byte), "",
                   "invalid_json");
  } catch (const Json::out_of_range& e) {
    throw ApiError(400, "body: expected numbers that fit a double, got a larger one", "",
                   "invalid_json");
  }
}

OrderedJson parse_ordered_field(std::string_view body, std::string_view name) {
  std::string_view key, value;
  TextWalk walk(body);
  for (size_t key_begin = 0, value_begin = 0; walk.next();) {
    const bool ends = (walk.depth() == 1 && walk.at(',')) || walk.depth() == 0;
    if (walk.depth() == 1 && walk.began_string()) key_begin = walk.position();
    if (walk.depth() == 1 && walk.at(':') && value_begin == 0) {
      key = body.substr(key_begin, walk.position() - key_begin);
      value_begin = walk.position() + 1;
    } else if (ends && value_begin != 0) {
      // The last one of several counts, as for the parser.
      if (Json::parse(key) == name) value = body.substr(value_begin, walk.position() - value_begin);
      value_begin = 0;
    }
  }
  // Members in order are found one after another, which takes quadratic time.
  constexpr size_t kMaxBytes = 64 << 10;
  if (value.size() > kMaxBytes) {
    bad_field(std::string(name), "expected at most {} bytes, got {}", kMaxBytes, value.size());
  }
  return OrderedJson::parse(value);
}

const Json* find_field(const Json& object, std::string_view name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

double read_number(const Json& value, const std::string& param, double low, double high) {
  if (!value.is_number()) bad_field(param, "expected a number, got {}", describe(value));
  const auto number = value.get<double>();
  if (!(number >= low && number <= high)) {
    bad_field(param, "expected a number from {} to {}, got {}", low, high, describe(value));
  }
  return number;
}

int64_t read_integer(const Json& value, const std::string& param, int64_t low, int64_t high) {
  if (!value.is_number_integer()) bad_field(param, "expected an integer, got {}", describe(value));
  const bool huge = value.is_number_unsigned() &&
                    value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  if (huge || value.get<int64_t>() < low || value.get<int64_t>() > high) {
    bad_field(param, "expected an integer from {} to {}, got {}", low, high, describe(value));
  }
  return value.get<int64_t>();
}

bool read_bool(const Json& value, const std::string& param) {
  if (!value.is_boolean()) bad_field(param, "expected true or false, got {}", describe(value));
  return value.get<bool>();
}

const std::string& read_string(const Json& value, const std::string& param) {
  if (!value.is_string()) bad_field(param, "expected a string, got {}", describe(value));
  return value.get_ref<const std::string&>();
}

const Json& read_array(const Json& value, const std::string& param) {
  if (!value.is_array()) bad_field(param, "expected an array, got {}", describe(value));
  return value;
}

const Json& read_object(const Json& value, const std::string& param) {
  if (!value.is_object()) bad_field(param, "expected an object, got {}", describe(value));
  return value;
}

std::vector<int32_t> read_token_ids(const Json& value, const std::string& param, int64_t limit) {
  std::vector<int32_t> ids;
  ids.reserve(read_array(value, param).size());
  for (const Json& entry : value) {
    // Above 2^63 get() comes out below 0.
    const int64_t id = entry.is_number_integer() ? entry.get<int64_t>() : -1;
    if (id < 0 || id >= limit) {
      bad_field(fmt::format("{}[{}]", param, ids.size()), "expected an id from 0 to {}, got {}",
                limit - 1, describe(entry));
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  if (ids.empty()) bad_field(param, "expected at least 1 token, got none");
  return ids;
}

std::string describe(const Json& value) {
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  if (!value.is_string()) return value.dump();
  const auto& text = value.get_ref<const std::string&>();
  return text.size() <= kQuoted ? fmt::format("'{}'", text)
                                : fmt::format("a string of {} bytes", text.size());
}

std::string dump(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

}  // namespace adder
