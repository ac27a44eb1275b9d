#pragma once
// Summary at the end: metrics, outputs, follow-up commands.

#include <cstdint>
#include <optional>
#include <string>

#include "train/config/run_config.h"
#include "train/record/validation_losses.h"
#include "train/run/export_validation.h"

namespace quench {

struct RunEnd {
  std::int64_t first_step = 0;  // first step of this start
  std::int64_t step = 0;
  std::int64_t steps = 0;
  int stop_signal = 0;           // that ended the run; 0: none
  double seconds = 0;            // time of this start, from its first batch
  std::int64_t tokens = 0;       // targets of this start
  std::int64_t tokens_seen = 0;  // over all starts
  double loss = 0;
  ValidationLosses validation;
  std::string ended_early = {};      // reason (evaluation.early_stopping); empty: no
  std::string best_checkpoint = {};  // checkpoint.keep_best; empty: none
  std::string best_value = {};       // value of another metric than the loss: BestEvaluation::describe()
  std::string checkpoint;            // newest; empty: none
  std::string exported;              // folder; empty: none
  std::optional<ExportValidation> export_validation = {};
  bool has_tokenizer = false;  // text can be generated
  bool chats = false;          // the tokenizer has a chat template
  int ranks = 1;
};

// Lines with a final line break; paths as in the config.
[[nodiscard]] std::string end_report(const RunConfig& config, const RunEnd& end);

}  // namespace quench
