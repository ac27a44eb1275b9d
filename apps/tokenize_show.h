#pragma once
// The subcommand `show` of `quench tokenize`.

#include <CLI/CLI.hpp>

namespace quench {

void add_tokenize_show(CLI::App& tokenize);

}  // namespace quench
