#pragma once

#include "apps/command.h"

namespace quench {

// Adds `config` with its subcommands ls, cp, check, print, diff, schema (and docs, hidden). Callbacks print to stdout
// and throw Error on failure.
void add_config_verb(const Command& app);

}  // namespace quench
