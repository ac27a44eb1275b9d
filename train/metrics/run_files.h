#pragma once
// Names of the files that a run leaves in its folder, for the trainer that writes and the report that reads them.
// The *.jsonl files hold one object a line with an integer "step" (json_lines.h).

namespace quench::run_files {

inline constexpr const char* kMetricsFolder = "metrics";          // holds the .jsonl files below
inline constexpr const char* kTensorBoardFolder = "tensorboard";  // inside the metrics folder
inline constexpr const char* kMetrics = "metrics.jsonl";          // one record a logged step
inline constexpr const char* kEvaluations = "evaluations.jsonl";  // one record an evaluation
inline constexpr const char* kSamples = "samples.jsonl";          // one record a generated text
inline constexpr const char* kHealth = "health.jsonl";            // one record a step whose health was measured
inline constexpr const char* kExperts = "experts.jsonl";          // one record a logged step of a model with experts
inline constexpr const char* kEvents = "events.jsonl";           // one record a resume, rollback, skipped step or spike
inline constexpr const char* kConfig = "config.json";            // the resolved config
inline constexpr const char* kEnvironment = "environment.json";  // versions, host, devices
inline constexpr const char* kRecipe = "recipe.json";            // what recipe.name "auto" became
inline constexpr const char* kSources = "sources.json";          // where config.json's paths lead, absolute
inline constexpr const char* kModelFolder = "model";             // config.json, tokenizer and other small files
inline constexpr const char* kCheckpointFolder = "checkpoints";  // step-N folders
inline constexpr const char* kReport = "report.html";
inline constexpr const char* kLog = "log.txt";  // what the run said, over all its starts

}  // namespace quench::run_files
