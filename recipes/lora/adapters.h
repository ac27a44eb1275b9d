#pragma once
// Low-rank adapters of a model: creation, merging, storage.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nn/modules/linear.h"
#include "nn/modules/low_rank_adapter.h"
#include "recipes/convert.h"
#include "recipes/lora/expert_adapter.h"
#include "recipes/lora/saved_modules.h"
#include "recipes/lora/token_rows.h"

namespace quench::recipes {

// Ranks, scales and targets of LoRA (Hu et al., 2021, arXiv:2106.09685).
struct LoraOptions {
  std::int64_t rank = 16;
  double alpha = 32;  // scaled by alpha / rank, with `rslora` by alpha / sqrt(rank)
  double dropout = 0;
  // Last name component ("q_proj"), path suffix ("layers.0.self_attn.q_proj"), or glob over the whole path
  // ("*.layers.1?.*").
  std::vector<std::string> targets;
  // The first matching pattern applies, as in PEFT.
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  bool rslora = false;
  bool dora = false;                              // trained magnitudes (nn/modules/low_rank_adapter.h)
  bool quantize_merged = true;                    // quantize W + update, if the recipe supports it
  std::uint64_t seed = 0;                         // draws of dropout
  std::vector<std::string> modules_to_save = {};  // as SavedModules
  TokenIds token_indices = {};                    // as TokenRows
};

// Hugging Face name, "model.layers.0.self_attn.q_proj".
struct LoraLayer {
  std::string name;
  std::int64_t rank = 0;
  double scale = 1;
};

// Whether a target names the layer (LoraOptions::targets).
[[nodiscard]] bool lora_pattern_matches(std::string_view pattern, std::string_view layer);

// Each expert is a layer, "model.layers.0.mlp.experts.3.gate_proj".
struct LinearShape {
  std::string name;
  std::int64_t out_features = 0;
  std::int64_t in_features = 0;
};
// By Hugging Face name, in module order.
[[nodiscard]] std::vector<LinearShape> adaptable_layers(nn::Module& root);

// Throws bad_config for a pattern without match (lora.targets, lora.rank_pattern, lora.alpha_pattern) and for a rank
// that exceeds a layer's size.
[[nodiscard]] std::vector<LoraLayer> lora_layers(nn::Module& root, const LoraOptions& options);

// Parameter of an adapter.
enum class AdapterPart : std::uint8_t { a, b, magnitude, module, tokens };

// Stored tensor of an adapter.
struct AdapterTensor {
  std::string layer;  // Hugging Face name; of module and tokens: of the module
  AdapterPart part = AdapterPart::a;
  Tensor value;
  nn::Parameter* parameter = nullptr;
};

// Adapters' parameters; while attached, they are parameters of the model.
class Adapters {
 public:
  // `root` must outlive this. Throws bad_config for an unknown layer, and where experts differ in rank or scale;
  // unsupported for dropout and magnitudes of experts.
  Adapters(nn::Module& root, const std::vector<LoraLayer>& layers, const LoraOptions& options,
           const nn::ParameterOptions& parameters);

  // Wraps the current kernels; to be repeated after each change of kernels.
  void attach() const;
  void name_kernels(std::vector<LayerConversion>& layers) const;
  // Restores the kernels from before attach().
  void detach() const;
  // Packed weights become dense.
  void merge() const;
  // Adds the update to `values`, all rows of a weight. `whole` gathers the adapter. No-op without adapter.
  void merge_into(const nn::Parameter& weight, const Tensor& values, const nn::WholeRows& whole) const;
  // Sets what derives from the base: magnitudes to the norms of the current weights, saved modules and
  // token rows to their originals.
  void begin_from_base(const nn::WholeRows& whole = {}) const;

  [[nodiscard]] const std::vector<LoraLayer>& layers() const noexcept { return layers_; }
  [[nodiscard]] const SavedModules& saved() const noexcept { return saved_; }
  [[nodiscard]] const TokenRows& tokens() const noexcept { return tokens_; }
  [[nodiscard]] const LoraOptions& options() const noexcept { return options_; }
  // Linear layers with their adapters, in module order.
  [[nodiscard]] std::vector<std::pair<nn::Linear*, const nn::LowRankAdapter*>> low_rank() const;
  // Names of the layers of experts with adapters.
  [[nodiscard]] std::vector<std::string> adapted_experts() const;
  [[nodiscard]] std::vector<nn::Parameter*> parameters() const;
  using Whole = nn::WholeRows;
  [[nodiscard]] std::vector<AdapterTensor> tensors(const Whole& whole = {}) const;
  [[nodiscard]] std::int64_t parameter_count() const;

 private:
  struct Entry {
    std::string name;
    nn::Linear* linear;
    std::shared_ptr<nn::LowRankAdapter> adapter;
    mutable std::shared_ptr<const nn::LinearKernel> base;  // null: not attached
  };

  struct ExpertEntry {
    std::string name;
    nn::ExpertLinear* linear;
    std::shared_ptr<ExpertAdapter> adapter;
    mutable std::shared_ptr<const nn::ExpertKernel> base;  // null: not attached
  };

  std::vector<LoraLayer> layers_;
  LoraOptions options_;
  std::vector<Entry> entries_;
  std::vector<ExpertEntry> experts_;
  SavedModules saved_;
  TokenRows tokens_;
};

// Frozen parameters are not in checkpoints.
void freeze_base(nn::Module& root);

}  // namespace quench::recipes
