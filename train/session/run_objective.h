#pragma once
// Objective of a run: made from its config for the trainer and for estimates.

#include <cstdint>
#include <memory>
#include <optional>

#include "data/formats/validation_cache.h"
#include "distributed/ranks.h"
#include "train/config/objective_table.h"
#include "train/objective/objective.h"

namespace quench {

struct DataSetup;
struct RunIdentity;
class RunSession;

// Data of a run, as an objective reads them.
struct ObjectiveInputs {
  const DataSetup& data;
  const RunIdentity& identity;
  ValidationCache* checks;  // hashes of files; null on ranks other than the first
  std::uint64_t samples;    // samples of data.train that the run reads
};

// State of the run before its first step.
struct ObjectiveStart {
  const DataSetup& data;
  bool is_initial;  // the weights are those of step 0
  ValidationCache& checks;
};

class RunObjective {
 public:
  virtual ~RunObjective() = default;
  // Null: next-token cross-entropy.
  [[nodiscard]] virtual Objective* training() noexcept { return nullptr; }
  // Null: next-token cross-entropy.
  [[nodiscard]] virtual Objective* validation() noexcept { return nullptr; }
  // Computes or reads what the steps need of the weights before them. Collective.
  virtual void start(const ObjectiveStart& /*start*/) {}
  // Logits of a second model stand next to the model's, by chunks of rows.
  [[nodiscard]] virtual bool has_second_logits() const noexcept { return false; }
};

// Weights of a second model, on the device and in host memory.
struct SecondModelBytes {
  std::int64_t device = 0;
  std::int64_t host = 0;
};

// Functions of an objective that run the model. Null members: nothing.
struct ObjectiveRuntime {
  // For the session's model, which is sharded over its ranks; the session outlives the result. `inputs`: null in an
  // estimate, where the model is on the meta device and nothing is read. Throws as its parts. Collective.
  std::unique_ptr<RunObjective> (*make)(const RunSession& session, const ObjectiveInputs* inputs) = nullptr;
  // Throws bad_config for a second model of another tokenizer; null: the run has none.
  void (*check_tokenizer)(const RunConfig& config, const Tokenizer* tokenizer) = nullptr;
  // Model whose forward pass every micro-batch adds. `own`: the trained model.
  std::optional<nn::ModelConfig> (*second_model)(const RunConfig& config, const nn::ModelConfig& own) = nullptr;
  // Memory of a second model that computes before the first step and is gone then. On the meta device.
  SecondModelBytes (*start_bytes)(const RunConfig& config, const distributed::Ranks& ranks) = nullptr;
  // Makes a batch of plain rows (train/step/meta_batch.h) one of the objective's records.
  void (*arrange)(const RunConfig& config, Batch& batch) = nullptr;
};

// Runtime of the run's objective; that of next-token cross-entropy has no functions.
[[nodiscard]] const ObjectiveRuntime& objective_runtime(const RunConfig& config);
// ObjectiveRuntime::arrange of pairs: each row becomes a pair of equally long answers.
void arrange_pairs(const RunConfig& config, Batch& batch);
// ObjectiveRuntime::make of the run's objective.
[[nodiscard]] std::unique_ptr<RunObjective> make_objective(const RunSession& session, const ObjectiveInputs* inputs);

}  // namespace quench
