// Section parallel.

#include "data/sampling/batch_part.h"
#include "train/check/checks.h"
#include "train/config/objective_table.h"

namespace quench {
namespace {

// Sequences in parts (data/sampling/batch_part.h).
void check_context(Checker& checker) {
  const RunConfig& config = checker.config();
  const std::int64_t parts = config.parallel.context, chunks = part_chunks(parts);
  if (parts == 1 || !checker.usable({"parallel.context"})) return;
  if (checker.usable({"data.seq_len"}) && config.data.seq_len % chunks != 0)
    checker.report("data.seq_len", "{} is not divisible by 2 x parallel.context {} = {}; nearest: {}",
                   config.data.seq_len, parts, chunks, nearest_multiples(config.data.seq_len, chunks));
  if (const ObjectiveEntry& objective = objective_of(config); !objective.takes_parts)
    checker.report("parallel.context", "{}, but the objective {} needs whole sequences; set it to 1", parts,
                   objective.name);
}

}  // namespace

void check_parallel(Checker& checker) {
  check_context(checker);
  check_tensor(checker);
  check_pipeline(checker);
  if (checker.usable({"parallel.shard"}) && checker.config().parallel.shard == 0)
    checker.report("parallel.shard", "0 processes cannot hold a model; -1 means all");
  if (checker.usable({"parallel.reduce_dtype", "training.dtype"}) &&
      checker.config().parallel.reduce_dtype == DType::bf16 && checker.config().training.dtype == DType::f32)
    checker.report("parallel.reduce_dtype",
                   "bf16, but with training.dtype f32 gradients are f32; change one of the two");
}

}  // namespace quench
