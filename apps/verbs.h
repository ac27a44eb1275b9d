#pragma once
// Verbs of the program, defined in apps/<verb>.cpp or a folder of apps/.

#include "apps/command.h"

namespace quench {

void add_bench_verb(const Command& app);
void add_completion_verb(const Command& app);
void add_config_verb(const Command& app);
void add_best_of_verb(const Command& app);
void add_distill_targets_verb(const Command& app);
void add_doctor_verb(const Command& app);
void add_estimate_verb(const Command& app);
void add_eval_verb(const Command& app);
void add_export_verb(const Command& app);
void add_forward_verb(const Command& app);
void add_generate_verb(const Command& app);
void add_inspect_verb(const Command& app);
void add_merge_lora_verb(const Command& app);
void add_plan_verb(const Command& app);
void add_probe_verb(const Command& app);
void add_pull_verb(const Command& app);
void add_push_verb(const Command& app);
void add_quantize_verb(const Command& app);
void add_report_verb(const Command& app);
void add_run_verb(const Command& app);
void add_serve_verb(const Command& app);
void add_tokenize_verb(const Command& app);
void add_train_verb(const Command& app);
void add_tune_verb(const Command& app);

}  // namespace quench
