#pragma once
// Second model of a run without gradients: teacher, reference, judge of an objective.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "data/formats/validation_cache.h"
#include "data/tokenizer/tokenizer.h"
#include "distributed/fsdp/sharded_model.h"
#include "distributed/ranks.h"
#include "nn/decoder/causal_lm.h"
#include "nn/decoder/weight_offload.h"
#include "recipes/lora/base_form.h"
#include "recipes/lora/quantized_base.h"
#include "train/config/run_config.h"

namespace quench {

// A second model, without gradients.
struct FrozenModel {
  FrozenModel() = default;
  FrozenModel(FrozenModel&&) = default;
  FrozenModel& operator=(FrozenModel&&) = delete;
  // Collective for a sharded model.
  ~FrozenModel() {
    if (sharded) sharded->end_gathers();
  }

  std::unique_ptr<nn::CausalLm> model;
  std::unique_ptr<recipes::QuantizedBase> base;        // base weights of a quantized model; or null
  std::unique_ptr<nn::WeightOffloader> offloader;      // weights in host memory; or null
  std::unique_ptr<distributed::ShardedModel> sharded;  // or null
};
struct FrozenWeights {
  std::string folder;                                 // empty: the run's model at step 0
  recipes::BaseForm form = recipes::BaseForm::dense;  // storage of linear layers; stored: needs a quantized folder
  bool offload = false;                               // in pinned host memory (nn/decoder/weight_offload.h)
};

// In the run's dtype, sharded over `ranks`. A single process quantizes and offloads weights one by one. Offloaded
// shards: those of decoder layers from distributed::kSmallBytes on. Device meta: without values. Throws as
// load_weights().
[[nodiscard]] FrozenModel make_frozen_model(const RunConfig& config, const nn::ModelConfig& architecture,
                                            const FrozenWeights& weights, Device device,
                                            const distributed::Ranks& ranks);

// Adds names and contents of the files that hold the weights of `model`, a model folder or a GGUF file.
void add_weight_files(Hash128& hash, const std::filesystem::path& model, ValidationCache& checks);

// Tokenizer of a second model; null: it holds none. Throws KeyError of `key`, with both fingerprints, the first other
// token and `hint`, unless it has the tokens of `tokenizer` at their ids. Names of begin, end and padding may differ.
std::shared_ptr<const Tokenizer> require_same_tokenizer(std::string_view key, const std::string& model,
                                                        const Tokenizer& tokenizer, std::string_view hint);

}  // namespace quench
