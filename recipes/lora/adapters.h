#pragma once
// Low-rank adapters of a model: which of its linear layers have one, and giving their kernels to the layers.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nn/linear.h"
#include "nn/low_rank_adapter.h"
#include "recipes/convert.h"
#include "recipes/lora/expert_adapter.h"

namespace quench::recipes {

struct LoraOptions {
  std::int64_t rank = 16;
  double alpha = 32;  // the update is scaled by alpha / rank, or with `rslora` by alpha / sqrt(rank)
  double dropout = 0;
  // Layers by the last component of their names ("q_proj"), by a path ("layers.0.self_attn.q_proj": whatever ends in
  // it), or by a glob over the whole path ("*.layers.1?.*").
  std::vector<std::string> targets;
  // By the same patterns, ranks and alphas of some of them; the first pattern in alphabetical order counts.
  std::map<std::string, std::int64_t> rank_pattern;
  std::map<std::string, double> alpha_pattern;
  bool rslora = false;
  bool dora = false;            // magnitudes are trained as well (nn/low_rank_adapter.h)
  bool quantize_merged = true;  // where the layer's recipe can, what it quantizes is the weight with its update
  std::uint64_t seed = 0;       // of dropout
};

// One adapted layer under its Hugging Face name, "model.layers.0.self_attn.q_proj".
struct LoraLayer {
  std::string name;
  std::int64_t rank = 0;
  double scale = 1;
};

// Whether a pattern of LoraOptions means the layer.
[[nodiscard]] bool lora_pattern_matches(std::string_view pattern, std::string_view layer);

// The linear layers of the model's decoder by their Hugging Face names, with [out, in] of each; those of experts are
// layers of their own, "model.layers.0.mlp.experts.3.gate_proj".
struct LinearShape {
  std::string name;
  std::int64_t out_features = 0;
  std::int64_t in_features = 0;
};
[[nodiscard]] std::vector<LinearShape> adaptable_layers(nn::Module& root);

// The layers that the options choose. Throws bad_config naming a pattern that matches none (lora.targets,
// lora.rank_pattern, lora.alpha_pattern) and a rank that exceeds a layer's size.
[[nodiscard]] std::vector<LoraLayer> lora_layers(nn::Module& root, const LoraOptions& options);

// What an adapted layer trains.
enum class AdapterPart : std::uint8_t { a, b, magnitude };

// A part of one adapted layer's adapter: rows of the parameter that holds it.
struct AdapterTensor {
  std::string layer;  // Hugging Face name
  AdapterPart part = AdapterPart::a;
  Tensor value;
  nn::Parameter* parameter = nullptr;
};

// Owns the adapters' parameters. While attached they belong to the layers, and so to the model's parameters.
class Adapters {
 public:
  // Parameters of these layers of the model, which lives longer. Of `options`, dropout, dora, seed and quantize_merged
  // are read; the rest describes how the layers were chosen. Throws bad_config for a name that is no layer of the
  // model, and where the experts of a layer do not all have an adapter of one rank and scale for a projection;
  // unsupported for dropout and magnitudes of experts.
  Adapters(nn::Module& root, const std::vector<LoraLayer>& layers, const LoraOptions& options,
           const nn::ParameterOptions& parameters);

  // Puts the adapters over the kernels that the layers have now; after each change of those, once more.
  void attach() const;
  // Writes the layers' kernels into a conversion's report.
  void name_kernels(std::vector<LayerConversion>& layers) const;
  // Gives the layers their kernels from before attach() back.
  void detach() const;
  // Adds the updates to the layers' weights, and detaches. Packed weights become dense.
  void merge() const;
  // The same for the values of all rows of one weight of the model, without changing the model. `whole` brings the
  // adapter's parameters. Nothing for a weight without adapter.
  void merge_into(const nn::Parameter& weight, const Tensor& values, const nn::WholeRows& whole) const;
  // Magnitudes become those of the layers' weights as they are, which `whole` brings.
  void set_magnitudes(const nn::WholeRows& whole = {}) const;

  [[nodiscard]] const std::vector<LoraLayer>& layers() const noexcept { return layers_; }
  [[nodiscard]] const LoraOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::vector<nn::Parameter*> parameters() const;
  using Whole = nn::WholeRows;
  [[nodiscard]] std::vector<AdapterTensor> tensors(const Whole& whole = {}) const;
  [[nodiscard]] std::int64_t parameter_count() const;

 private:
  struct Entry {
    std::string name;  // of the layer, fused or not
    nn::Linear* linear;
    std::shared_ptr<nn::LowRankAdapter> adapter;
    mutable std::shared_ptr<const nn::LinearKernel> base;  // null: not attached
  };

  struct ExpertEntry {
    std::string name;  // of the experts' layer, fused or not
    nn::ExpertLinear* linear;
    std::shared_ptr<ExpertAdapter> adapter;
    mutable std::shared_ptr<const nn::ExpertKernel> base;  // null: not attached
  };

  std::vector<LoraLayer> layers_;
  LoraOptions options_;
  std::vector<Entry> entries_;
  std::vector<ExpertEntry> experts_;
};

// Nothing of the model but its adapters is trained, or held by checkpoints.
void freeze_base(nn::Module& root);

}  // namespace quench::recipes
