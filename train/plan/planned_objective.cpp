#include "train/plan/planned_objective.h"

#include <algorithm>

#include "train/model_folder/model_folder.h"
#include "train/setup/frozen_model.h"
#include "train/setup/preference_setup.h"
#include "train/step/meta_batch.h"

namespace quench {

SecondModelBytes reference_weight_bytes(const RunConfig& config, const distributed::Ranks* ranks) {
  if (!config.preference || !needs_reference(config.preference->loss)) return {};
  const std::string& folder = config.preference->reference;
  if (folder == kAutoReference || folder == kBaseReference || folder == kInitialReference) return {};
  Allocator& plan = Allocator::of(kMeta);
  plan.reset_peak();
  const std::int64_t before = plan.stats().current;
  const FrozenModel model = make_frozen_model(config, read_model_config(folder),
                                              {.folder = folder, .offload = config.preference->offload}, kMeta, ranks);
  SecondModelBytes bytes{.device = plan.stats().current - before};
  if (model.offloader != nullptr) {
    // A shard is filled on the device before its layers go to host memory.
    bytes.device = std::max(bytes.device + model.offloader->device_bytes(), plan.stats().peak - before);
    bytes.host = model.offloader->host_bytes();
  }
  return bytes;
}

std::optional<nn::ModelConfig> second_model(const RunConfig& config, const nn::ModelConfig& own) {
  if (config.distill && config.distill->targets.empty()) {
    const std::string& teacher = config.distill->teacher;
    return teacher == kBaseTeacher || teacher == kInitialTeacher ? own : read_model_config(teacher);
  }
  if (config.preference && needs_reference(config.preference->loss) && reference_of(config) == kBaseReference)
    return own;
  return std::nullopt;
}

Batch planned_batch(const RunConfig& config) {
  Batch batch = meta_batch(config.training.micro_batch_size, config.data.seq_len);
  if (!config.preference || config.data.seq_len < 2) return batch;
  std::vector<SequenceRange> answers;
  for (const SequenceRange& row : batch.sequences) {
    const std::int64_t half = row.q_length / 2, middle = row.q_begin + half, rest = row.q_length - half;
    batch.pairs.push_back({.sequence = answers.size()});
    answers.push_back({row.q_begin, half, row.q_begin, half});
    answers.push_back({middle, rest, middle, rest});
  }
  batch.sequences = std::move(answers);
  return batch;
}

}  // namespace quench
