#pragma once
// The adapters of a run (config section lora), and checkpoints that hold adapters alone.
//
// Such a checkpoint names its base by a hash of the base's weights, which come from where the run's config says: a
// model folder, or random draws of its seed.

#include <functional>
#include <memory>
#include <string>

#include "distributed/ranks.h"
#include "nn/causal_lm.h"
#include "recipes/lora/adapters.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/checkpoint_state.h"
#include "train/config/run_config.h"
#include "train/setup/model_setup.h"

namespace quench {

// Of the section lora, which the config has, with the run's seed.
[[nodiscard]] recipes::LoraOptions lora_options(const RunConfig& config);

// Makes the adapters that the config asks for, not attached yet, and freezes the rest of the model; null without the
// section lora. `parameters`: where and in which types.
[[nodiscard]] std::unique_ptr<recipes::Adapters> make_adapters(nn::CausalLm& model, const RunConfig& config,
                                                               const nn::ParameterOptions& parameters);

// Fills a model with adapters, before it is shared out among `ranks`, if any: the weights of the base, which are kept
// as lora.base says, and the adapters' initial values. Returns the hash of the base, on all processes: 16 hex digits,
// of the values of all parameters that belong to no adapter, or of their codes where those are kept as stored.
[[nodiscard]] std::string fill_adapted(ModelSetup& setup, const RunConfig& config,
                                       const distributed::Ranks* ranks = nullptr);
// The memory of it, on the meta device.
void plan_base(ModelSetup& setup, const RunConfig& config);

// CheckpointState::extra.
// The hash of a model's weights, adapters aside, as fill_adapted() makes it of a base whose parameters have this dtype:
// f32 or bf16. No weight is kept as codes.
[[nodiscard]] std::string base_hash_as(nn::CausalLm& model, DType dtype);
// Of a checkpoint that holds adapters alone.
[[nodiscard]] std::string stored_base_hash(const CheckpointState& state);
void store_base(CheckpointState& state, const std::string& hash);
[[nodiscard]] bool holds_adapters_alone(const CheckpointState& state);
// Throws bad_config, naming `source`, where the adapters of a checkpoint were trained over another base.
void require_base(const CheckpointState& state, const std::string& hash, const std::string& source);

// Makes a model of the base and the adapters of a checkpoint that holds adapters alone. `model` has the checkpoint's
// dtype. Throws not_found where the base is not found from here, and what require_base() throws.
[[nodiscard]] std::unique_ptr<recipes::Adapters> restore_adapted(CheckpointReader& reader,
                                                                 std::unique_ptr<nn::CausalLm>& model,
                                                                 const std::string& source);

// "lora: rank 16, ... 112 layers, 10,092,544 of 1,245,906,944 parameters are trained (0.8%)"
[[nodiscard]] std::string describe_adapters(const recipes::Adapters& adapters, std::int64_t model_parameters);

}  // namespace quench
