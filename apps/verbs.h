#pragma once
// The verbs of the program; each file apps/<verb>.cpp defines one.

#include <CLI/CLI.hpp>

namespace quench {

void add_completion_verb(CLI::App& app);
void add_config_verb(CLI::App& app);
void add_estimate_verb(CLI::App& app);
void add_eval_verb(CLI::App& app);
void add_export_verb(CLI::App& app);
void add_forward_verb(CLI::App& app);
void add_generate_verb(CLI::App& app);
void add_inspect_verb(CLI::App& app);
void add_merge_lora_verb(CLI::App& app);
void add_probe_verb(CLI::App& app);
void add_quantize_verb(CLI::App& app);
void add_report_verb(CLI::App& app);
void add_run_verb(CLI::App& app);
void add_tokenize_verb(CLI::App& app);
void add_train_verb(CLI::App& app);

}  // namespace quench
