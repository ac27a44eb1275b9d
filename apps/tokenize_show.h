#pragma once
// Subcommand `show` of `quench tokenize`.

#include "apps/command.h"

namespace quench {

void add_tokenize_show(const Command& tokenize);

}  // namespace quench
