// Whether a JSON value satisfies a schema, for the keywords that the grammars enforce: written from
// the specification (draft 2020-12), by way of nothing that the grammars are made of.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

namespace adder::testing {

class SchemaValidator {
 public:
  using Json = nlohmann::json;
  explicit SchemaValidator(Json root) : root_(std::move(root)) {}

  bool valid(const Json& value) const { return valid(root_, value); }

 private:
  static bool has_type(const Json& value, const std::string& type) {
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_boolean();
    if (type == "integer") {
      return value.is_number_integer() ||
             (value.is_number() && std::trunc(value.get<double>()) == value.get<double>());
    }
    if (type == "number") return value.is_number();
    if (type == "string") return value.is_string();
    if (type == "array") return value.is_array();
    return type == "object" && value.is_object();
  }

  static size_t characters(const std::string& text) {
    size_t count = 0;
    for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    return count;
  }

  // The code points of valid UTF-8: expressions see characters, not bytes.
  static std::wstring wide(const std::string& text) {
    std::wstring out;
    for (size_t i = 0; i < text.size();) {
      const auto lead = static_cast<unsigned char>(text[i]);
      const size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
      uint32_t c = length == 1 ? lead : lead & (0xffu >> (length + 1));
      for (size_t k = 1; k < length; ++k) c = c << 6 | (static_cast<uint32_t>(text[i + k]) & 0x3f);
      out += static_cast<wchar_t>(c);
      i += length;
    }
    return out;
  }

  bool valid(const Json& schema, const Json& value) const {
    if (schema.is_boolean()) return schema.get<bool>();
    const auto get = [&](const char* key) -> const Json* {
      const auto found = schema.find(key);
      return found == schema.end() ? nullptr : &*found;
    };
    if (const Json* ref = get("$ref")) {
      const std::string pointer = ref->get<std::string>().substr(1);
      if (!valid(root_.at(Json::json_pointer(pointer)), value)) return false;
    }
    if (const Json* all = get("allOf")) {
      for (const Json& part : *all) {
        if (!valid(part, value)) return false;
      }
    }
    for (const char* key : {"anyOf", "oneOf"}) {
      const Json* any = get(key);
      if (any == nullptr) continue;
      bool one = false;
      for (const Json& part : *any) one = one || valid(part, value);
      if (!one) return false;
    }
    if (const Json* type = get("type")) {
      bool one = false;
      for (const Json& name : type->is_array() ? *type : Json::array({*type})) {
        one = one || has_type(value, name.get<std::string>());
      }
      if (!one) return false;
    }
    if (const Json* values = get("enum")) {
      if (std::find(values->begin(), values->end(), value) == values->end()) return false;
    }
    if (const Json* constant = get("const")) {
      if (*constant != value) return false;
    }
    if (value.is_number() && !valid_number(schema, value.get<double>())) return false;
    if (value.is_string() && !valid_string(schema, value.get<std::string>())) return false;
    if (value.is_array() && !valid_array(schema, value)) return false;
    return !value.is_object() || valid_object(schema, value);
  }

  static bool valid_number(const Json& schema, double value) {
    const auto limit = [&](const char* key, auto holds) {
      return !schema.contains(key) || holds(schema[key].get<double>());
    };
    return limit("minimum", [&](double x) { return value >= x; }) &&
           limit("maximum", [&](double x) { return value <= x; }) &&
           limit("exclusiveMinimum", [&](double x) { return value > x; }) &&
           limit("exclusiveMaximum", [&](double x) { return value < x; });
  }

  static bool valid_string(const Json& schema, const std::string& value) {
    const size_t length = characters(value);
    if (length < schema.value("minLength", size_t{0})) return false;
    if (schema.contains("maxLength") && length > schema["maxLength"].get<size_t>()) return false;
    if (schema.contains("pattern") &&
        !std::regex_search(wide(value), std::wregex(wide(schema["pattern"])))) {
      return false;
    }
    return !schema.contains("format") || valid_format(schema["format"], value);
  }

  static bool valid_format(const std::string& format, const std::string& value) {
    if (format == "uuid") {
      static const std::regex uuid("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}");
      return std::regex_match(value, uuid);
    }
    if (format == "date") return valid_date(value);
    if (format == "time") return valid_time(value);
    return format == "date-time" && value.size() > 11 && value[10] == 'T' &&
           valid_date(value.substr(0, 10)) && valid_time(value.substr(11));
  }

  static bool valid_date(const std::string& value) {
    static const std::regex shape("\\d{4}-\\d\\d-\\d\\d");
    if (!std::regex_match(value, shape)) return false;
    const int year = std::stoi(value.substr(0, 4)), month = std::stoi(value.substr(5, 2)),
              day = std::stoi(value.substr(8, 2));
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    const int days[] = {31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1];
  }

  static bool valid_time(const std::string& value) {
    static const std::regex shape(R"((\d\d):(\d\d):(\d\d)(\.\d+)?(Z|[+-](\d\d):(\d\d)))");
    std::smatch found;
    if (!std::regex_match(value, found, shape)) return false;
    const auto below = [&](size_t group, int limit) {
      return found[group].length() == 0 || std::stoi(found[group]) < limit;
    };
    return below(1, 24) && below(2, 60) && below(3, 60) && below(6, 24) && below(7, 60);
  }

  bool valid_array(const Json& schema, const Json& value) const {
    if (value.size() < schema.value("minItems", size_t{0})) return false;
    if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<size_t>())
      return false;
    const Json first = schema.value("prefixItems", Json::array());
    for (size_t i = 0; i < value.size(); ++i) {
      if (i < first.size()) {
        if (!valid(first[i], value[i])) return false;
      } else if (schema.contains("items") && !valid(schema["items"], value[i])) {
        return false;
      }
    }
    return true;
  }

  bool valid_object(const Json& schema, const Json& value) const {
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) return false;
    }
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [name, item] : value.items()) {
      if (properties.contains(name)) {
        if (!valid(properties[name], item)) return false;
      } else if (schema.contains("additionalProperties") &&
                 !valid(schema["additionalProperties"], item)) {
        return false;
      }
    }
    return true;
  }

  Json root_;
};

}  // namespace adder::testing
