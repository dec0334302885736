#include "engine/json_schema_grammar.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "engine/grammar_expr.h"
#include "engine/json_pattern.h"
#include "engine/json_rules.h"
#include "engine/json_schema.h"
#include "io/printable.h"

namespace adder {
namespace {

using Expr = GrammarExpr;

constexpr uint32_t kMaxDepth = 64;  // schemas inside each other, references not counted
// Schemas and the bytes of names, values and patterns, again with every place that they apply to.
constexpr uint32_t kMaxWork = 200'000;

constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
    // The days of each month, and of February in leap years.
    {"date",
     R"(^(\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))|(\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)$)"},
    {"time", R"(^([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$)"},
    {"uuid", R"(^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$)"},
};

std::optional<std::string> format_pattern(const std::string& format) {
  for (const auto& [name, pattern] : kFormats) {
    if (name == format) return std::string(pattern);
  }
  if (format != "date-time") return std::nullopt;
  std::string date = *format_pattern("date"), time = *format_pattern("time");
  date.pop_back();  // the anchors between the two
  return date + "T" + time.substr(1);
}

// Functions give nothing when no value satisfies the schema.
class SchemaGrammar {
 public:
  explicit SchemaGrammar(std::string_view schema) : reader_(schema), json_(source_) {
    source_.what = kJsonSchemaName;
  }

  std::shared_ptr<const Grammar> compile();

 private:
  using Result = std::optional<Expr>;

  [[noreturn]] static void refuse(const JsonSchema& schema, const std::string& problem) {
    fail_schema(schema.where, problem);
  }
  void count_work(size_t amount);
  static void check_depth(const JsonSchema& schema, uint32_t depth);
  JsonSchema merge(const JsonSchema& a, const JsonSchema& b);
  // Without ref and all_of.
  JsonSchema resolved(const JsonSchema& schema, uint32_t depth);

  Result any(const JsonSchema& schema, uint32_t depth);
  Expr reference(const std::string& ref);
  Result alternatives(const JsonSchema& schema, uint32_t depth);
  Result values(const JsonSchema& schema);
  Result typed(const JsonSchema& schema, uint32_t depth);
  Result number(const JsonSchema& schema);
  Result integer(const JsonSchema& schema);
  Result string(const JsonSchema& schema);
  Result array(const JsonSchema& schema, uint32_t depth);
  Result object(const JsonSchema& schema, uint32_t depth);
  Result other_member(const JsonSchema& schema, uint32_t depth);
  uint32_t add_member(const JsonSchema& schema, Expr key, Expr value);

  JsonSchemaReader reader_;
  GrammarSource source_;
  JsonRules json_;
  std::map<std::string, uint32_t> references_;               // the rules of places
  std::vector<std::pair<std::string, uint32_t>> unwritten_;  // those without a body yet
  uint32_t work_ = 0;
};

std::shared_ptr<const Grammar> SchemaGrammar::compile() {
  source_.root = reference("#").rule;
  while (!unwritten_.empty()) {
    const auto [ref, rule] = unwritten_.back();
    unwritten_.pop_back();
    const JsonSchema::Ptr schema = reader_.resolve(ref);
    Result body = any(*schema, 0);
    if (!body) refuse(*schema, "expected a schema that something satisfies, got one for nothing");
    source_.rules[rule].body = std::move(*body);
  }
  return Grammar::compile(source_);
}

void SchemaGrammar::count_work(size_t amount) {
  work_ += static_cast<uint32_t>(std::min<size_t>(amount, kMaxWork));
  ADDER_CHECK(work_ <= kMaxWork,
              "{}: expected a schema that is smaller when all that it merges is written out",
              kJsonSchemaName);
}

void SchemaGrammar::check_depth(const JsonSchema& schema, uint32_t depth) {
  if (depth <= kMaxDepth) return;
  refuse(schema,
         fmt::format("expected at most {} schemas inside each other, got more; a schema that "
                     "contains itself must do so by $ref alone",
                     kMaxDepth));
}

JsonSchema SchemaGrammar::merge(const JsonSchema& a, const JsonSchema& b) {
  for (const JsonSchema* schema : {&a, &b}) {
    count_work(10 + schema->properties.size() + schema->required.size() + schema->any_of.size() +
               (schema->values ? schema->values->size() : 0));
  }
  return merge_schemas(a, b);
}

JsonSchema SchemaGrammar::resolved(const JsonSchema& schema, uint32_t depth) {
  check_depth(schema, depth);
  JsonSchema own = schema;
  own.ref.clear();
  own.all_of.clear();
  std::optional<JsonSchema> result;
  const auto add = [&](const JsonSchema& part) { result = result ? merge(*result, part) : part; };
  if (!schema.ref.empty()) add(resolved(*reader_.resolve(schema.ref), depth + 1));
  for (const auto& part : schema.all_of) add(resolved(*part, depth + 1));
  if (!result || !own.is_open() || !own.any_of.empty()) add(own);
  result->where = schema.where;
  return *result;
}

SchemaGrammar::Result SchemaGrammar::any(const JsonSchema& schema, uint32_t depth) {
  count_work(1);
  check_depth(schema, depth);
  if (schema.never) return std::nullopt;
  const bool open = schema.is_open() && schema.any_of.empty();
  if (open && schema.all_of.empty()) {
    return schema.ref.empty() ? json_.value() : reference(schema.ref);
  }
  if (open && schema.ref.empty() && schema.all_of.size() == 1) {
    return any(*schema.all_of.front(), depth + 1);
  }
  const JsonSchema merged = resolved(schema, depth);
  if (merged.never) return std::nullopt;
  if (!merged.any_of.empty()) return alternatives(merged, depth);
  if (merged.values) return values(merged);
  return typed(merged, depth);
}

// The body is written later: a chain of references is no recursion here.
Expr SchemaGrammar::reference(const std::string& ref) {
  const auto [found, is_new] = references_.try_emplace(ref, 0);
  if (is_new) {
    found->second = source_.add(ref);
    unwritten_.emplace_back(ref, found->second);
  }
  return Expr::call(found->second);
}

SchemaGrammar::Result SchemaGrammar::alternatives(const JsonSchema& schema, uint32_t depth) {
  JsonSchema common = schema;
  common.any_of.clear();
  std::vector<Expr> parts;
  for (const auto& branch : schema.any_of) {
    Result part = common.is_open() ? any(*branch, depth + 1)
                                   : any(merge(common, resolved(*branch, depth + 1)), depth + 1);
    if (part) parts.push_back(std::move(*part));
  }
  if (parts.empty()) return std::nullopt;
  return Expr::choice(std::move(parts));
}

SchemaGrammar::Result SchemaGrammar::values(const JsonSchema& schema) {
  if (schema.limits_objects() || schema.limits_arrays() || schema.limits_strings() ||
      schema.limits_numbers()) {
    refuse(schema, "enum or const beside keywords other than type is not supported");
  }
  uint8_t types = schema.types.value_or(0xff);
  if ((types & JsonSchema::kNumber) != 0) types |= JsonSchema::kInteger;
  std::vector<Expr> parts;
  for (const JsonSchema::Value& value : *schema.values) {
    count_work(value.text.size());
    if ((value.type & types) != 0) parts.push_back(literal(value.text));
  }
  if (parts.empty()) return std::nullopt;
  return Expr::choice(std::move(parts));
}

SchemaGrammar::Result SchemaGrammar::typed(const JsonSchema& schema, uint32_t depth) {
  uint8_t types = 0;
  if (schema.limits_objects()) types |= JsonSchema::kObject;
  if (schema.limits_arrays()) types |= JsonSchema::kArray;
  if (schema.limits_strings()) types |= JsonSchema::kString;
  if (schema.limits_numbers()) types |= JsonSchema::kNumber;
  if (schema.types) types = *schema.types;
  if (types == 0 && !schema.types) return json_.value();
  std::vector<Expr> parts;
  const auto add = [&](Result part) {
    if (part) parts.push_back(std::move(*part));
  };
  if ((types & JsonSchema::kObject) != 0) add(object(schema, depth));
  if ((types & JsonSchema::kArray) != 0) add(array(schema, depth));
  if ((types & JsonSchema::kString) != 0) add(string(schema));
  if ((types & JsonSchema::kNumber) != 0) {
    add(number(schema));
  } else if ((types & JsonSchema::kInteger) != 0) {
    add(integer(schema));
  }
  if ((types & JsonSchema::kBoolean) != 0) add(Expr::choice(literal("true"), literal("false")));
  if ((types & JsonSchema::kNull) != 0) add(literal("null"));
  if (parts.empty()) return std::nullopt;
  return Expr::choice(std::move(parts));
}

SchemaGrammar::Result SchemaGrammar::integer(const JsonSchema& schema) {
  if (!schema.limits_numbers()) return json_.integer();
  int64_t low = -kMaxJsonInteger, high = kMaxJsonInteger;
  if (const auto& limit = schema.low) {
    low = std::max(low, limit->whole + (limit->has_fraction || limit->excluded ? 1 : 0));
  }
  if (const auto& limit = schema.high) {
    high = std::min(high, limit->whole - (limit->excluded && !limit->has_fraction ? 1 : 0));
  }
  if (low > high) return std::nullopt;
  return json_integers(low, high);
}

SchemaGrammar::Result SchemaGrammar::number(const JsonSchema& schema) {
  if (!schema.limits_numbers()) return json_.number();
  const auto limit = [&](const std::optional<JsonSchema::Limit>& given) {
    if (given && given->has_fraction) {
      refuse(schema, "limits of a number that are not whole are not supported");
    }
    return given ? std::optional(JsonLimit{given->whole, given->excluded}) : std::nullopt;
  };
  return json_numbers(limit(schema.low), limit(schema.high));
}

SchemaGrammar::Result SchemaGrammar::string(const JsonSchema& schema) {
  if (!schema.limits_strings()) return json_.string();
  std::string pattern = schema.pattern;
  if (!schema.format.empty()) {
    const auto found = format_pattern(schema.format);
    if (!found) {
      refuse(schema, fmt::format("format {} is not supported, only date, time, date-time and uuid",
                                 printable(schema.format)));
    }
    if (!pattern.empty()) refuse(schema, "format beside pattern is not supported");
    pattern = *found;
  }
  Expr inside;
  if (!pattern.empty()) {
    if (schema.min_length > 0 || schema.max_length != JsonSchema::kUnbounded) {
      refuse(schema, "minLength or maxLength beside pattern or format is not supported");
    }
    count_work(pattern.size());
    inside = json_pattern(pattern, json_.character(), schema_place(schema.where));
  } else {
    if (schema.min_length > schema.max_length) return std::nullopt;
    inside = Expr::repeat(json_.character(), schema.min_length, schema.max_length);
  }
  return Expr::sequence(literal("\""), std::move(inside), literal("\""));
}

// Rule i holds what may follow the first i items.
SchemaGrammar::Result SchemaGrammar::array(const JsonSchema& schema, uint32_t depth) {
  if (!schema.limits_arrays()) return json_.array();
  uint32_t most = schema.max_items;
  if (schema.min_items > most) return std::nullopt;
  std::vector<Expr> first;  // prefixItems
  for (const auto& item : schema.prefix_items) {
    Result value = any(*item, depth + 1);
    if (!value || first.size() == most) {
      most = static_cast<uint32_t>(first.size());  // an array may end before it
      break;
    }
    first.push_back(Expr::call(source_.add(item->where, std::move(*value))));
  }
  const auto prefix = static_cast<uint32_t>(first.size());
  Result other;
  if (schema.items != nullptr) {
    if (most > prefix) other = any(*schema.items, depth + 1);
  } else if (schema.prefix_items.empty() || schema.min_items > prefix) {
    other = json_.value();
    if (!schema.prefix_items.empty()) most = std::min(most, schema.min_items);
  }
  if (!other) most = std::min(most, prefix);
  if (schema.min_items > most) return std::nullopt;

  const auto comma = [](Expr item) {
    return Expr::sequence(literal(","), json_blank(), std::move(item));
  };
  Expr rest = literal("]");
  if (other && most > prefix) {
    const uint32_t rule = source_.add(schema.where + "[]", std::move(*other));
    const uint32_t min = std::max(schema.min_items, prefix) - prefix;
    const uint32_t max = most == JsonSchema::kUnbounded ? Expr::kUnbounded : most - prefix;
    const Expr item = Expr::call(rule);
    if (prefix > 0) {
      rest = Expr::sequence(Expr::repeat(comma(item), min, max), std::move(rest));
    } else {
      // The first item has no comma before it.
      Expr items = Expr::sequence(item, Expr::repeat(comma(item), min > 0 ? min - 1 : 0,
                                                     max == Expr::kUnbounded ? max : max - 1));
      if (min == 0) items = Expr::optional(std::move(items));
      rest = Expr::sequence(std::move(items), std::move(rest));
    }
  }
  for (uint32_t i = prefix; i > 0; --i) {
    const uint32_t behind = source_.add(schema.where, std::move(rest));
    std::vector<Expr> parts;
    parts.push_back(Expr::sequence(i == 1 ? first[0] : comma(first[i - 1]), Expr::call(behind)));
    if (schema.min_items < i) parts.push_back(literal("]"));
    rest = Expr::choice(std::move(parts));
  }
  return Expr::sequence(literal("["), std::move(rest));
}

uint32_t SchemaGrammar::add_member(const JsonSchema& schema, Expr key, Expr value) {
  return source_.add(schema.where,
                     Expr::sequence(std::move(key), literal(":"), json_blank(), std::move(value)));
}

// A property that the schema does not name.
SchemaGrammar::Result SchemaGrammar::other_member(const JsonSchema& schema, uint32_t depth) {
  Result value;
  if (schema.additional != nullptr) {
    value = any(*schema.additional, depth + 1);
  } else if (!schema.has_properties) {
    value = json_.value();
  }
  if (!value) return std::nullopt;
  std::vector<std::string> names = schema.required;
  for (const auto& [name, property] : schema.properties) names.push_back(name);
  for (const std::string& name : names) {
    if (name.size() > kMaxOtherKey) {
      refuse(schema, fmt::format("names of more than {} bytes beside additionalProperties are not "
                                 "supported, got {}",
                                 kMaxOtherKey, printable(name)));
    }
  }
  return Expr::call(add_member(schema, json_.other_key(names), std::move(*value)));
}

// Rule i holds what may follow once a property has been written and the next may be the i-th.
SchemaGrammar::Result SchemaGrammar::object(const JsonSchema& schema, uint32_t depth) {
  if (!schema.limits_objects()) return json_.object();
  struct Member {
    Expr call;
    bool required;
  };
  std::vector<Member> members;
  std::set<std::string_view> required(schema.required.begin(), schema.required.end());
  for (const auto& [name, property] : schema.properties) {
    count_work(name.size());
    const bool must = required.erase(name) > 0;
    Result value = any(*property, depth + 1);
    if (!value && must) return std::nullopt;
    if (!value) continue;
    const uint32_t rule = add_member(*property, literal(json_quoted(name)), std::move(*value));
    members.push_back({Expr::call(rule), must});
  }
  for (const std::string& name : schema.required) {
    if (required.erase(name) == 0) continue;  // one of the properties, or named twice
    count_work(name.size());
    Result value = schema.additional ? any(*schema.additional, depth + 1) : json_.value();
    if (!value) {
      refuse(schema, fmt::format("expected {}, which is required, among the properties, since "
                                 "additionalProperties allows no other",
                                 printable(name)));
    }
    const uint32_t rule = add_member(schema, literal(json_quoted(name)), std::move(*value));
    members.push_back({Expr::call(rule), true});
  }
  const Result other = other_member(schema, depth);

  const auto comma = [](Expr member) {
    return Expr::sequence(literal(","), json_blank(), std::move(member));
  };
  std::vector<uint32_t> rest(members.size() + 1);
  rest.back() = source_.add(schema.where, other ? Expr::repeat(comma(*other), 0) : Expr());
  for (size_t i = members.size(); i > 0; --i) {
    Expr member = comma(members[i - 1].call);
    if (!members[i - 1].required) member = Expr::optional(std::move(member));
    rest[i - 1] = source_.add(schema.where, Expr::sequence(std::move(member), Expr::call(rest[i])));
  }
  std::vector<Expr> first;
  bool must_have = false;
  for (size_t i = 0; i < members.size() && !must_have; ++i) {
    first.push_back(Expr::sequence(members[i].call, Expr::call(rest[i + 1])));
    must_have = members[i].required;
  }
  if (!must_have) {
    if (other) first.push_back(Expr::sequence(*other, Expr::call(rest.back())));
    first.push_back(Expr());
  }
  return Expr::sequence(literal("{"), Expr::choice(std::move(first)), literal("}"));
}

}  // namespace

std::shared_ptr<const Grammar> json_object_grammar() {
  static const std::shared_ptr<const Grammar> grammar = [] {
    GrammarSource source;
    JsonRules json(source);
    source.root = json.object().rule;
    return Grammar::compile(source);
  }();
  return grammar;
}

std::shared_ptr<const Grammar> json_schema_grammar(std::string_view schema_json) {
  return SchemaGrammar(schema_json).compile();
}

}  // namespace adder
