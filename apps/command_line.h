#pragma once
// What the whole command line has in common, before one verb reads it.

#include <string>

#include "apps/command.h"

namespace quench {

// Why the words that should name a verb, or a subcommand of one, name none: with the nearest and all that there are.
// Empty where they do, or where there is none.
[[nodiscard]] std::string unknown_verb(const Command& app, int count, const char* const* arguments);

}  // namespace quench
