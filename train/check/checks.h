#pragma once
// Checks of config sections (check_run_config()).

#include <string>

#include "train/check/checker.h"

namespace quench {

// <run.folder>/model of an earlier start, else empty: fallback for a missing model folder or tokenizer.
[[nodiscard]] std::string kept_model_part(const RunConfig& config);

// Positive multiples of `unit` next to `number`: "64 or 68".
[[nodiscard]] std::string nearest_multiples(std::int64_t number, std::int64_t unit);

void check_model(Checker& checker);
void check_data(Checker& checker);
void check_training(Checker& checker);
// The part of section training that says what a pass holds.
void check_activations(Checker& checker);
void check_outputs(Checker& checker);
void check_parallel(Checker& checker);
// parallel.tensor, next to other keys; and over the run's model.
void check_tensor(Checker& checker);
void check_tensor_model(Checker& checker, const nn::ModelConfig& model);
// parallel.pipeline, next to other keys; and over the run's model.
void check_pipeline(Checker& checker);
void check_pipeline_model(Checker& checker, const nn::ModelConfig& model);
void check_export(Checker& checker);
void check_adapters(Checker& checker);
// Each section of an objective by its own check, and that there is one at most.
void check_objectives(Checker& checker);

}  // namespace quench
