// What satisfies two JSON schemas at once.
#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>

#include "core/error.h"
#include "engine/json_schema.h"

namespace adder {
namespace {

using Ptr = JsonSchema::Ptr;

[[noreturn]] void refuse(const JsonSchema& a, const JsonSchema& b, std::string_view what) {
  fail_schema(a.where, fmt::format("{} here and in '{}', which must both hold, is not supported",
                                   what, b.where));
}

// Both; null says nothing.
Ptr both(const Ptr& a, const Ptr& b) {
  if (a == nullptr || a == b) return b;
  if (b == nullptr) return a;
  auto merged = std::make_shared<JsonSchema>();
  merged->where = a->where;
  merged->all_of = {a, b};
  return merged;
}

using Properties = std::map<std::string_view, Ptr>;

Properties by_name(const JsonSchema& schema) {
  return {schema.properties.begin(), schema.properties.end()};
}

void merge_objects(JsonSchema& merged, const JsonSchema& b) {
  const Ptr additional = merged.additional;
  const Properties mine = by_name(merged), others = by_name(b);
  for (auto& [name, schema] : merged.properties) {
    const auto other = others.find(name);
    schema = both(schema, other != others.end() ? other->second : b.additional);
  }
  std::vector<std::pair<std::string, Ptr>> added;  // names in `mine` must not move
  for (const auto& [name, schema] : b.properties) {
    if (!mine.contains(name)) added.emplace_back(name, both(additional, schema));
  }
  merged.properties.insert(merged.properties.end(), added.begin(), added.end());
  merged.has_properties |= b.has_properties;
  merged.required.insert(merged.required.end(), b.required.begin(), b.required.end());
  merged.additional = both(additional, b.additional);
}

void merge_arrays(JsonSchema& merged, const JsonSchema& b) {
  if ((!merged.prefix_items.empty() && (!b.prefix_items.empty() || b.items != nullptr)) ||
      (!b.prefix_items.empty() && merged.items != nullptr)) {
    refuse(merged, b, "prefixItems beside items or prefixItems");
  }
  if (merged.prefix_items.empty()) merged.prefix_items = b.prefix_items;
  merged.items = both(merged.items, b.items);
  merged.min_items = std::max(merged.min_items, b.min_items);
  merged.max_items = std::min(merged.max_items, b.max_items);
}

void merge_strings(JsonSchema& merged, const JsonSchema& b) {
  const auto one = [&](std::string& mine, const std::string& other, std::string_view what) {
    if (!mine.empty() && !other.empty() && mine != other) refuse(merged, b, what);
    if (mine.empty()) mine = other;
  };
  one(merged.pattern, b.pattern, "a pattern");
  one(merged.format, b.format, "a format");
  merged.min_length = std::max(merged.min_length, b.min_length);
  merged.max_length = std::min(merged.max_length, b.max_length);
}

std::optional<uint8_t> common_types(std::optional<uint8_t> a, std::optional<uint8_t> b) {
  if (!a || !b) return a ? a : b;
  // Every integer is a number.
  const auto with_integers = [](uint8_t types) {
    return static_cast<uint8_t>((types & JsonSchema::kNumber) != 0 ? types | JsonSchema::kInteger
                                                                   : types);
  };
  return static_cast<uint8_t>(with_integers(*a) & with_integers(*b));
}

}  // namespace

std::optional<JsonSchema::Limit> tighter_limit(const std::optional<JsonSchema::Limit>& a,
                                               const std::optional<JsonSchema::Limit>& b,
                                               bool low) {
  if (!a || !b) return a ? a : b;
  const auto key = [](const JsonSchema::Limit& limit) {
    return std::tuple(limit.whole, limit.has_fraction);
  };
  if (key(*a) == key(*b)) return a->excluded ? a : b;
  return (key(*a) > key(*b)) == low ? a : b;
}

JsonSchema merge_schemas(const JsonSchema& a, const JsonSchema& b) {
  JsonSchema merged = a;
  merged.never |= b.never;
  if (!a.any_of.empty() && !b.any_of.empty()) refuse(a, b, "anyOf or oneOf");
  if (a.any_of.empty()) merged.any_of = b.any_of;
  merged.types = common_types(a.types, b.types);
  if (a.values && b.values) {
    std::erase_if(*merged.values, [&](const JsonSchema::Value& value) {
      return std::none_of(b.values->begin(), b.values->end(),
                          [&](const JsonSchema::Value& other) { return other.text == value.text; });
    });
  } else if (b.values) {
    merged.values = b.values;
  }
  merge_objects(merged, b);
  merge_arrays(merged, b);
  merge_strings(merged, b);
  merged.low = tighter_limit(a.low, b.low, true);
  merged.high = tighter_limit(a.high, b.high, false);
  return merged;
}

}  // namespace adder
