#pragma once
// Stored targets of a distillation (distill.targets): computing them, and checking that they belong to a run.

#include <cstdint>
#include <functional>
#include <memory>

#include "distributed/ranks.h"
#include "train/config/run_config.h"
#include "train/objectives/distillation/distill_section.h"
#include "train/objectives/distillation/run/stored_targets.h"
#include "train/record/run_identity.h"
#include "train/session/data_setup.h"

namespace quench {

// Tokens of a target: distill.top_k, or the vocabulary if smaller.
[[nodiscard]] std::int64_t kept_tokens(const DistillSection& distill, std::int64_t vocab);

// Targets of the first `samples` of data.train. Throws KeyError naming the folder and the command that computes them if
// they are missing, too few, or belong to another tokenizer, vocabulary, data, packing, temperature or number of
// tokens; and errors of StoredTargets. `checks`: hashes of files, for the teacher's weights, if they exist; null: not
// compared.
[[nodiscard]] std::shared_ptr<const StoredTargets> open_targets(const RunConfig& config, const RunIdentity& identity,
                                                                const Dataset& data, std::int64_t vocab,
                                                                std::uint64_t samples, ValidationCache* checks);

struct MakeTargetsOptions {
  std::uint64_t max_shard_targets = std::uint64_t{1} << 18;
  std::uint64_t max_shard_bytes = std::uint64_t{256} << 20;
  // Called once before the first sequence: returns a function that gives the stop signal, or 0.
  std::function<std::function<int()>()> watch_stop = {};
};

struct MakeTargetsReport {
  std::string folder;
  std::uint64_t rows = 0;     // rows that the run reads
  std::uint64_t kept = 0;     // rows among them that were stored before
  std::uint64_t targets = 0;  // computed now, by all ranks
  std::uint64_t bytes = 0;    // size of the folder's shards
  int stop_signal = 0;        // that ended the work early; 0: none
};

// Runs the teacher over the rows of the run that distill.targets does not hold, and stores its most probable tokens
// there. Shards appear complete: after a kill, the same call continues. Collective. Throws KeyError for a
// folder with targets of another teacher or as in open_targets(), locked if another process writes there, and
// nonfinite.
MakeTargetsReport make_targets(const RunConfig& config, Device device,
                               const std::shared_ptr<const distributed::Ranks>& ranks,
                               const MakeTargetsOptions& options = {});

}  // namespace quench
