#pragma once
// Table of the keywords of JSON Schema (draft 2020-12) that a grammar keeps to. Any other is refused, so that an answer
// never breaks a schema that was taken.
//
// One of $ref (within the schema), const, enum, anyOf, oneOf, allOf (of one schema) decides alone; else "type", one or
// several:
//   string    pattern (of printable ASCII, for texts without escapes), or minLength and maxLength, or format (date,
//             time, uuid, ...; others are notes)
//   integer   minimum, maximum, exclusiveMinimum, exclusiveMaximum, or multipleOf to 1024
//   number    minimum, maximum, exclusiveMinimum, exclusiveMaximum; in a range, with at most six decimals
//   array     items, prefixItems, minItems, maxItems
//   object    properties, required, additionalProperties (false where absent), minProperties, maxProperties
// title, description, default, examples and the like are notes. Objects without "type" need properties or
// additionalProperties, arrays items or prefixItems.

#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench {

// Throws bad_config naming keyword and place, such as "#/properties/name".
void check_schema(const Json& schema);

// An ECMAScript expression without look-around, back-references and word boundaries, whose repetitions are nested at
// most twice. Throws bad_config about `what`.
void check_expression(std::string_view expression, const std::string& what);

}  // namespace quench
