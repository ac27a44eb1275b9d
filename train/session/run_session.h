#pragma once
// RunSession: model, recipe, sharding, optimizer, objective and training step of a config, on any device. On the meta
// device they have shapes, bytes and kernels but no values: an estimate runs the code that trains.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "distributed/ranks.h"
#include "train/config/resolved_config.h"
#include "train/session/model_setup.h"
#include "train/session/run_objective.h"
#include "train/step/train_step.h"

namespace quench {

// Where a session's tensors are, and what they are for.
struct RunSessionOptions {
  Device device;                              // meta: no values
  std::optional<Device> target = {};          // device that recipe and loss are planned for; unset: `device`
  std::optional<nn::ModelConfig> model = {};  // in place of the one of section model
  std::shared_ptr<const distributed::Ranks> ranks = distributed::Ranks::single();  // not null
};

// Stages of a run, in this order: the constructor, load_base(), share(), add_optimizer(), add_objective(), add_step(),
// then fill() or a checkpoint's values. Each may be the last: a model without optimizer, an optimizer without step. All
// are collective over the ranks, and throw what their parts throw (model_setup.h, adapter_setup.h, parallel_setup.h,
// optimizer_setup.h, run_objective.h).
class RunSession {
 public:
  // Model with its recipe, adapters and frozen parameters; parameters are allocated, not filled.
  RunSession(ResolvedConfig config, RunSessionOptions options);
  RunSession(const RunSession&) = delete;
  RunSession& operator=(const RunSession&) = delete;

  // Base weights under adapters and the adapters' first values, while linear layers have all rows. Nothing in full
  // training, and on the meta device, where build_model() has planned the base.
  void load_base();
  // Shards the model over the ranks. Nothing in a single process.
  void share();
  // For this rank's parameters. Again: another one, after a change of kernels.
  void add_optimizer();
  // `inputs`: null in an estimate, which reads nothing.
  void add_objective(const ObjectiveInputs* inputs = nullptr);
  void add_step();
  // Weights of model.path, or random ones by training.seed; those of load_base() stay.
  void fill();

  // Micro and global batch of `fitted`, which the data fill (fit_batch()). Kernels stay.
  void set_batch(const RunConfig& fitted);
  // Kernels of the recipe, or in high precision, for the 0-based `step` of `steps` (in_high_precision()). True if they
  // have changed.
  bool follow_recipe(std::int64_t step, std::int64_t steps);

  [[nodiscard]] const ResolvedConfig& resolved() const noexcept { return config_; }
  [[nodiscard]] const RunConfig& config() const noexcept { return config_; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] Device target() const noexcept { return target_; }
  [[nodiscard]] const distributed::Ranks& ranks() const noexcept { return *ranks_; }
  [[nodiscard]] const ModelSetup& setup() const noexcept { return setup_; }
  [[nodiscard]] nn::CausalLm& model() const noexcept { return *setup_.model; }
  [[nodiscard]] const nn::ModelConfig& model_config() const noexcept { return setup_.config; }
  // Hash of the base weights under adapters; empty in full training.
  [[nodiscard]] const std::string& base_hash() const noexcept { return base_hash_; }
  [[nodiscard]] bool is_in_high_precision() const noexcept { return in_high_precision_; }
  // Null in a single process, and before share().
  [[nodiscard]] distributed::ShardedModel* sharded() const noexcept { return sharded_.get(); }
  // To other pipeline stages; null: there are none.
  [[nodiscard]] distributed::StageExchange* stages() const noexcept { return stages_.get(); }
  // Null before the stage that adds them.
  [[nodiscard]] nn::Optimizer* optimizer() const noexcept { return optimizer_.get(); }
  [[nodiscard]] RunObjective* objective() const noexcept { return objective_.get(); }
  [[nodiscard]] TrainStep* step() const noexcept { return step_.get(); }
  // Options of the loss over the model's vocabulary.
  [[nodiscard]] LmHeadLossOptions loss() const { return loss_options(config_, setup_.config.vocab_size, target_); }

 private:
  ResolvedConfig config_;
  Device device_;
  Device target_;
  std::shared_ptr<const distributed::Ranks> ranks_;
  ModelSetup setup_;
  std::string base_hash_;
  bool in_high_precision_ = false;
  std::unique_ptr<distributed::StageExchange> stages_;
  std::unique_ptr<distributed::ShardedModel> sharded_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::unique_ptr<RunObjective> objective_;
  std::unique_ptr<TrainStep> step_;
};

}  // namespace quench
