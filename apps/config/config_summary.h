#pragma once
// Summary of a ready run in `quench config ls`.

#include <string>

#include "train/config/presets.h"

namespace quench {

// An embedded run in the words of `config ls`.
struct RunSummary {
  std::string model;     // preset or name of its folder
  std::string method;    // "QLoRA (nf4)", "LoRA + QAT int8dyn_int4", "pre-training float8_rowwise"
  std::string length;    // "400 steps", "1 epoch"
  std::string gpu;       // "24 GB": its memory limit, or the smallest usual GPU that holds it; empty if unknown
  std::string exported;  // format of the folder written at its end; empty without one
};

[[nodiscard]] RunSummary summarize_run(const EmbeddedConfig& run);

// One line: of a model its parameters and family, of a run what it trains, how, on how large a GPU, and what it writes.
[[nodiscard]] std::string summary_line(const EmbeddedConfig& config);

}  // namespace quench
