#pragma once
// File names of a run folder, shared by trainer and report. *.jsonl: one object per line with an integer "step"
// (json_lines.h).

namespace quench::run_files {

inline constexpr const char* kMetricsFolder = "metrics";
inline constexpr const char* kTensorBoardFolder = "tensorboard";
inline constexpr const char* kMetrics = "metrics.jsonl";
inline constexpr const char* kEvaluations = "evaluations.jsonl";
inline constexpr const char* kSamples = "samples.jsonl";
inline constexpr const char* kHealth = "health.jsonl";
inline constexpr const char* kExperts = "experts.jsonl";
inline constexpr const char* kEvents = "events.jsonl";
inline constexpr const char* kConfig = "config.json";
inline constexpr const char* kEnvironment = "environment.json";  // versions, host, devices
inline constexpr const char* kRecipe = "recipe.json";            // choice for recipe.name "auto"
inline constexpr const char* kSources = "sources.json";          // absolute paths named by config.json
inline constexpr const char* kModelFolder = "model";             // config.json, tokenizer and other small files
inline constexpr const char* kCheckpointFolder = "checkpoints";
inline constexpr const char* kReport = "report.html";
inline constexpr const char* kLog = "log.txt";  // console output over all starts

}  // namespace quench::run_files
