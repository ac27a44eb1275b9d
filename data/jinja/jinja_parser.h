#pragma once
// Jinja's grammar, as far as chat templates use it: output, set, if, for, macro, break, continue, raw, comments, and
// Transformers' {% generation %}. Other statements are refused by their names.

#include <string_view>

#include "data/jinja/jinja_tree.h"

namespace quench::jinja {

// Throws Error(unsupported) "<name>:<line>: <what>", also for templates nested too deeply.
[[nodiscard]] Block parse(std::string_view source, std::string_view name);

}  // namespace quench::jinja
