#pragma once
// Output, set, if, for, with, macro, call, filter, block, break, continue, raw, comments, and Transformers' {%
// generation %}. Statements of other templates or extensions are rejected by name.

#include <string_view>

#include "data/jinja/jinja_tree.h"

namespace quench::jinja {

// Throws Error(unsupported) "<name>:<line>: <what>", also for excessive nesting.
[[nodiscard]] Block parse(std::string_view source, std::string_view name);

}  // namespace quench::jinja
