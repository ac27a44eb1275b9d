#pragma once
// Verb `config`: embedded configs, checks and comparisons of configs.

#include "apps/command.h"

namespace quench {

// Subcommands ls, cp, check, print, diff, schema (and docs, hidden). Callbacks print to stdout; throw Error on failure.
void add_config_verb(const Command& app);

}  // namespace quench
