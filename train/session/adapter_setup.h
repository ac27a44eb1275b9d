#pragma once
// Adapters of a run (section lora), and adapter-only checkpoints, which identify the base (from model folder or random
// seed) by a hash of its weights.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "distributed/ranks.h"
#include "nn/decoder/causal_lm.h"
#include "recipes/lora/adapters.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/checkpoint_state.h"
#include "train/config/run_config.h"
#include "train/session/model_setup.h"

namespace quench {

// Section lora must be present.
[[nodiscard]] recipes::LoraOptions lora_options(const RunConfig& config);

// Unattached adapters; freezes the rest of the model. Null without section lora. `parameters`: device and dtypes.
[[nodiscard]] std::unique_ptr<recipes::Adapters> make_adapters(nn::CausalLm& model, const RunConfig& config,
                                                               const nn::ParameterOptions& parameters);

// Before sharding over `ranks`: base weights stored as lora.base says, and initial adapter values. Returns the
// base hash on all ranks: 16 hex digits, over values of all non-adapter parameters, or over quantized values kept as
// stored.
[[nodiscard]] std::string fill_adapted(ModelSetup& setup, const RunConfig& config,
                                       const distributed::Ranks& ranks = *distributed::Ranks::single());
// On the meta device.
void plan_base(ModelSetup& setup, const RunConfig& config);

// Hash of non-adapter weights in `dtype` (f32 or bf16), as by fill_adapted(); stored in CheckpointState::extra. No
// weight may be quantized. `vocabulary`: rows of embedding and head that count, without those of new tokens; 0: all.
[[nodiscard]] std::string base_hash_as(nn::CausalLm& model, DType dtype, std::int64_t vocabulary = 0);
[[nodiscard]] std::string stored_base_hash(const CheckpointState& state);
void store_base(CheckpointState& state, const std::string& hash);
[[nodiscard]] bool holds_adapters_alone(const CheckpointState& state);
// Throws bad_config naming `source` for another base.
void require_base(const CheckpointState& state, const std::string& hash, const std::string& source);

// model.path of such a checkpoint's run, found as by restore_adapted(); may be empty, or not exist.
[[nodiscard]] std::string base_path(const CheckpointState& state, const std::string& source,
                                    const std::filesystem::path& run);

// Base and adapters of an adapter-only checkpoint. `model` has the checkpoint's dtype. The base is the recorded path,
// else that path from the folder in which the run in folder `run` was started; `run` may be empty. Throws not_found for
// a missing base, and as require_base().
[[nodiscard]] std::unique_ptr<recipes::Adapters> restore_adapted(CheckpointReader& reader,
                                                                 std::unique_ptr<nn::CausalLm>& model,
                                                                 const std::string& source,
                                                                 const std::filesystem::path& run = {});

// "lora: rank 16, ... 112 layers, 10,092,544 of 1,245,906,944 parameters are trained (0.8%)"
[[nodiscard]] std::string describe_adapters(const recipes::Adapters& adapters, std::int64_t model_parameters);

}  // namespace quench
