// Grammars for response_format: JSON objects of any kind, or those that satisfy a schema.
//
// Every text of these grammars is strict JSON (json_rules.h says how blanks and numbers are
// bounded) and satisfies the schema. Not every document that satisfies it can be written:
//   * Properties come in the order of the schema, then further ones. Without additionalProperties
//     there are further ones only where the schema names no property, and without items none
//     behind prefixItems but for those that minItems asks for. required names that are no property
//     may hold any value.
//   * Without type, the types that the other keywords speak of are written; without these, any.
//   * Keys of further properties have no escapes, so that they cannot repeat a name. That two
//   further
//     properties have different names is left to the model.
//   * Numbers with a limit have no exponent. Limits of type number must be whole.
//
// Enforced: type (one or several), enum, const, properties, required, additionalProperties, items,
// prefixItems, minItems, maxItems, minLength, maxLength, pattern (json_pattern.h; not beside
// lengths), format date, time, date-time, uuid, minimum, maximum and their exclusive forms, anyOf,
// oneOf (as anyOf), allOf and keywords beside $ref (merged), $ref to any place in the schema,
// recursion included. title, description, default, examples and other annotations are ignored.
// Everything else is refused.
#pragma once

#include <memory>
#include <string_view>

#include "engine/grammar.h"

namespace adder {

// {"type": "json_object"}. The same grammar with every call.
std::shared_ptr<const Grammar> json_object_grammar();

// Throws Error(kBadInput) "response_format: json_schema: field 'properties.age': ..." for malformed
// schemas, keywords that cannot be enforced, schemas that nothing satisfies, and what exceeds the
// limits of Grammar.
std::shared_ptr<const Grammar> json_schema_grammar(std::string_view schema_json);

}  // namespace adder
