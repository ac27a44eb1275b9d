#pragma once
// Final summary of a run: metrics, output paths and follow-up commands.

#include <cstdint>
#include <optional>
#include <string>

#include "train/config/run_config.h"

namespace quench {

// Validation losses over all starts of a run; steps after a resume point are dropped.
struct ValidationLosses {
  struct Entry {
    std::int64_t step = 0;
    double loss = 0;
  };
  std::optional<Entry> best, last;

  // Non-finite losses only count as last.
  void add(Entry entry);
};

// Losses of `metrics`/evaluations.jsonl up to `last_step`; empty for a missing or unreadable file.
[[nodiscard]] ValidationLosses read_validation_losses(const std::string& metrics, std::int64_t last_step);

struct RunEnd {
  std::int64_t first_step = 0;  // this start began after this step
  std::int64_t step = 0;
  std::int64_t steps = 0;
  int stop_signal = 0;           // signal that ended the run; 0: none
  double seconds = 0;            // this start, from its first batch
  std::int64_t tokens = 0;       // target tokens of this start
  std::int64_t tokens_seen = 0;  // over all starts
  double loss = 0;
  ValidationLosses validation;
  std::string checkpoint;      // newest checkpoint; empty: none
  std::string exported;        // export folder; empty: none
  bool has_tokenizer = false;  // text can be generated
  bool chats = false;          // the tokenizer has a chat template
  int ranks = 1;
};

// Several lines with a final line break. Paths as in the config, shell-quoted if needed.
[[nodiscard]] std::string end_report(const RunConfig& config, const RunEnd& end);

}  // namespace quench
