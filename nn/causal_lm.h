#pragma once
// A decoder-only language model: embedding, layers, final norm, head.

#include <memory>
#include <optional>
#include <vector>

#include "autograd/functions.h"
#include "nn/decoder_layer.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/rms_norm.h"

namespace quench::nn {

class CausalLm final : public Module {
 public:
  CausalLm(const ModelConfig& config, const ParameterOptions& options);

  // Final normalised hidden states [N,H] of ids i32 [N].
  [[nodiscard]] Variable hidden(const Tensor& ids, const ForwardContext& context) const;
  // `scale` times the sum of cross-entropies against labels i32 [N] (already shifted, -100 = ignored): f32 [1].
  // `losses`, if not null, receives the f32 [N] loss of each token.
  [[nodiscard]] Variable loss(const Tensor& ids, const Tensor& labels, const ForwardContext& context, float scale,
                              const LmHeadLossOptions& options = {}, Tensor* losses = nullptr) const;
  // f32 [N,V]; for evaluation and generation (no gradient).
  [[nodiscard]] Tensor logits(const Variable& hidden) const;

  // A context for the given sequences: positions count from the start of each.
  [[nodiscard]] ForwardContext make_context(std::vector<SequenceRange> sequences, std::int64_t tokens) const;
  // The same with those positions given, i32 [N] on any device.
  [[nodiscard]] ForwardContext make_context(std::vector<SequenceRange> sequences, const Tensor& positions) const;

  // The parts that sharded training gathers and frees as one, in the order of the forward pass: embedding, layers,
  // final norm, and the head where it has a weight of its own.
  struct Unit {
    std::string name;           // of the module: "model.layers.3"
    std::int64_t layer = -1;    // of a decoder layer: its number, by which UnitHooks call it
    bool makes_logits = false;  // the head's weight is among the parameters
    std::vector<Parameter*> parameters;
  };
  [[nodiscard]] std::vector<Unit> units();
  // Called around each layer in every pass from now on, outside the hooks of a context; nullptr: nothing is. They
  // outlive the model's passes.
  void set_unit_hooks(const UnitHooks* hooks) noexcept { unit_hooks_ = hooks; }
  // Whether weights stay where they are between passes: not those that a source brings for each.
  [[nodiscard]] bool weights_stay() const noexcept { return unit_hooks_ == nullptr; }

  // Fills every parameter from (seed, Hugging Face name, global element): independent of sharding and of fusion.
  void initialize(std::uint64_t seed);

  [[nodiscard]] const ModelConfig& config() const noexcept { return config_; }
  [[nodiscard]] const ParameterOptions& options() const noexcept { return options_; }
  // The head's weight: its own, or the embedding's when tied.
  [[nodiscard]] Weight head_weight() const;

 private:
  struct Body final : Module {
    Body(const ModelConfig& config, const ParameterOptions& options);
    Embedding embed_tokens;
    std::vector<std::unique_ptr<DecoderLayer>> layers;
    RmsNorm norm;
  };

  // How the head's recipe computes its products; null: plainly. A tied head has the recipe of the embedding.
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms() const;
  [[nodiscard]] std::pair<Variable, Variable> run_layer(std::size_t index, const Variable& residual,
                                                        const Variable& delta, const ForwardContext& context) const;

  ModelConfig config_;
  ParameterOptions options_;
  Body model_;
  std::optional<Linear> lm_head_;
  const UnitHooks* unit_hooks_ = nullptr;
  mutable RopeTable rope_;                 // grows to the longest sequence seen
  mutable RopeTable query_scales_;         // likewise
  mutable std::int64_t rope_length_ = -1;  // the rope_effective_length it was made for
};

}  // namespace quench::nn
