#pragma once
// Files of a run folder. *.jsonl: json_lines.h.

#include <array>

namespace quench::run_files {

inline constexpr const char* kMetricsFolder = "metrics";
inline constexpr const char* kTensorBoardFolder = "tensorboard";
inline constexpr const char* kMetrics = "metrics.jsonl";
inline constexpr const char* kEvaluations = "evaluations.jsonl";
inline constexpr const char* kSamples = "samples.jsonl";
inline constexpr const char* kHealth = "health.jsonl";
inline constexpr const char* kExperts = "experts.jsonl";
inline constexpr const char* kEvents = "events.jsonl";
inline constexpr std::array kJsonLines{kMetrics, kEvaluations, kSamples, kHealth, kExperts, kEvents};
inline constexpr const char* kMetricsOwner = ".run";  // path from the metrics folder to the run's
inline constexpr const char* kConfig = "config.json";
inline constexpr const char* kEnvironment = "environment.json";  // versions, host, devices
inline constexpr const char* kRecipe = "recipe.json";            // choice for "auto"
inline constexpr const char* kSources = "sources.json";          // absolute paths for config.json
inline constexpr const char* kModelFolder = "model";             // config.json, tokenizer and other small files
inline constexpr const char* kCheckpointFolder = "checkpoints";
inline constexpr const char* kReport = "report.html";
inline constexpr const char* kProfile = "profile.txt";  // metrics.profile_step
inline constexpr const char* kLog = "log.txt";          // console output of all starts

}  // namespace quench::run_files
