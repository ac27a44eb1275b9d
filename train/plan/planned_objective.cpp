#include "train/plan/planned_objective.h"

#include "train/model_folder/model_folder.h"
#include "train/setup/frozen_model.h"
#include "train/step/meta_batch.h"

namespace quench {

std::int64_t reference_weight_bytes(const RunConfig& config, const distributed::Ranks* ranks) {
  if (!config.preference || !needs_reference(config.preference->loss)) return 0;
  const std::string& folder = config.preference->reference;
  if (folder == kAutoReference || folder == kBaseReference || folder == kInitialReference) return 0;
  const Allocator& plan = Allocator::of(kMeta);
  const std::int64_t before = plan.stats().current;
  const FrozenModel model = make_frozen_model(config, read_model_config(folder), {.folder = folder}, kMeta, ranks);
  return plan.stats().current - before;
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
