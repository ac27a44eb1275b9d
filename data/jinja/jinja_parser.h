#pragma once
// Jinja's grammar: output, set, if, for, with, macro, call, filter, block, break, continue, raw, comments, and
// Transformers' {% generation %}. Statements that need other templates or extensions are refused by their names.

#include <string_view>

#include "data/jinja/jinja_tree.h"

namespace quench::jinja {

// Throws Error(unsupported) "<name>:<line>: <what>", also for templates nested too deeply.
[[nodiscard]] Block parse(std::string_view source, std::string_view name);

}  // namespace quench::jinja
