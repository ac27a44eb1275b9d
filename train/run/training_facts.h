#pragma once
// Facts of a training run for its model card.

#include <optional>

#include "data/sampling/dataset.h"
#include "train/config/run_config.h"
#include "train/model_folder/model_card.h"

namespace quench {

struct TrainedState {
  std::int64_t step = 0;
  std::int64_t tokens = 0;                     // targets, of all steps
  std::string data = {};                       // training_data_text(); empty: the files of the config
  std::optional<double> validation_loss = {};  // the last one
};

// "chats.jsonl: 600 documents, 41,203 tokens".
[[nodiscard]] std::string training_data_text(const RunConfig& config, const Dataset& train);

[[nodiscard]] TrainingFacts training_facts(const RunConfig& config, const TrainedState& state);

}  // namespace quench
