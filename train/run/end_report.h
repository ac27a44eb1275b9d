#pragma once
// The summary that a run ends with: its figures, where its results are, and the commands that use them.

#include <cstdint>
#include <optional>
#include <string>

#include "train/config/run_config.h"

namespace quench {

// Validation losses of a run over all its starts; steps later than the one that a start resumes from do not count.
struct ValidationLosses {
  struct Entry {
    std::int64_t step = 0;
    double loss = 0;
  };
  std::optional<Entry> best, last;

  // Losses that are not finite count as last alone.
  void add(Entry entry);
};

// Of `metrics`/evaluations.jsonl, up to `last_step`; empty where there is no such file, or it cannot be read.
[[nodiscard]] ValidationLosses read_validation_losses(const std::string& metrics, std::int64_t last_step);

struct RunEnd {
  std::int64_t first_step = 0;   // this start began after it
  std::int64_t step = 0;         // done
  std::int64_t steps = 0;        // in all
  int stop_signal = 0;           // that ended the run early; 0: none did
  double seconds = 0;            // of this start, from its first batch
  std::int64_t tokens = 0;       // target tokens of this start
  std::int64_t tokens_seen = 0;  // of all starts
  double loss = 0;               // of the last step
  ValidationLosses validation;
  std::string checkpoint;      // the newest one; empty: none was written
  std::string exported;        // folder; empty: none was written
  bool has_tokenizer = false;  // text can be generated
  bool chats = false;          // the tokenizer has a chat template
  int ranks = 1;
};

// Several lines, the last with a line break. Paths are as the config has them, quoted for a shell where they need to
// be.
[[nodiscard]] std::string end_report(const RunConfig& config, const RunEnd& end);

}  // namespace quench
