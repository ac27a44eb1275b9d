#pragma once
// Decoder-only language model: embedding, decoder layers, final norm and head; its loss, logits and FSDP units.

#include <memory>
#include <optional>
#include <vector>

#include "autograd/functions.h"
#include "nn/attention/kv_cache.h"
#include "nn/attention/layer_rotations.h"
#include "nn/decoder/decoder_layer.h"
#include "nn/decoder/layer_range.h"
#include "nn/decoder/mtp_layer.h"
#include "nn/modules/embedding.h"
#include "nn/modules/linear.h"
#include "nn/modules/rms_norm.h"

namespace quench::nn {

// Decoder-only language model of any family of nn/models.
class CausalLm final : public Module {
 public:
  // `chunks`: ascending ranges of the config's decoder layers that the object holds, under the names of the whole
  // model, with the embedding before the first layer and norm and head after the last; empty: all. A tied table is held
  // at both ends, at the last one as a copy (Parameter::is_copy()). Throws unsupported for MTP layers in chunks.
  CausalLm(const ModelConfig& config, const ParameterOptions& options, std::vector<LayerRange> chunks = {});

  [[nodiscard]] const std::vector<LayerRange>& chunks() const noexcept { return chunks_; }
  [[nodiscard]] bool is_whole() const noexcept { return starts(0) && ends(0); }
  // Whether a chunk begins with the embedding, and ends with the norm before the head.
  [[nodiscard]] bool starts(std::size_t chunk) const noexcept { return chunks_[chunk].begin == 0; }
  [[nodiscard]] bool ends(std::size_t chunk) const noexcept { return chunks_[chunk].end == config_.num_hidden_layers; }
  // Table of a tied head that another object holds too; null: none.
  [[nodiscard]] Parameter* shared_table() noexcept;

  // Hidden states [N,H] after the layers of ForwardContext::chunk, normalised after the last one.
  [[nodiscard]] Variable hidden(const Tensor& ids, const ForwardContext& context) const;
  // Normalised hidden states [N,H] of the model's MTP layers, by depth from 1: row i of depth k predicts token i + k
  // + 1. `hidden`: of hidden() in the same pass. After hidden(), for a training pass.
  struct MtpInput {
    Tensor ids;  // i32 [N], tokens i + k
    // Rows that have such a token (ForwardContext::counted_rows); without pairs: all.
    autograd::TokenPermutation rows;
    float part = 1.0f;  // ForwardContext::part
  };
  [[nodiscard]] std::vector<Variable> mtp_hidden(Variable hidden, std::span<const MtpInput> inputs,
                                                 const ForwardContext& context) const;
  // `scale` times the sum of cross-entropies against labels i32 [N] (already shifted, -100 = ignored): f32 [1].
  // `losses`, if not null: f32 [N].
  [[nodiscard]] Variable loss(const Tensor& ids, const Tensor& labels, const ForwardContext& context, float scale,
                              const LmHeadLossOptions& options = {}, Tensor* losses = nullptr) const;
  // The loss of final hidden states; `rows`: cross_entropy if null.
  [[nodiscard]] Variable head_loss(const Variable& hidden, const Tensor& labels, float scale,
                                   const LmHeadLossOptions& options = {}, Tensor* losses = nullptr,
                                   LogitsLoss* rows = nullptr) const;
  // f32 [N,V], without gradient.
  [[nodiscard]] Tensor logits(const Variable& hidden) const;

  // Positions restart at 0 in each sequence.
  [[nodiscard]] ForwardContext make_context(std::vector<SequenceRange> sequences, std::int64_t tokens) const;
  // Positions i32 [N] on any device.
  [[nodiscard]] ForwardContext make_context(std::vector<SequenceRange> sequences, const Tensor& positions) const;
  // With sequences whose first keys are those of other rows; `positions` continue theirs.
  [[nodiscard]] ForwardContext make_context(std::vector<SequenceRange> sequences,
                                            std::span<const SharedPrefix> prefixes, const Tensor& positions) const;

  // Exchange of parts of sequences with other ranks; null: sequences are whole. Must outlive the model's passes.
  void set_sequence_exchange(const autograd::SequenceExchange* exchange) noexcept { sequence_exchange_ = exchange; }
  [[nodiscard]] const autograd::SequenceExchange* sequence_exchange() const noexcept { return sequence_exchange_; }

  // Ranks that hold the other slices of the weights (ParameterOptions::tensor); null: this one has all. Must outlive
  // the model's passes.
  void set_tensor_exchange(const autograd::TensorExchange* exchange) noexcept { tensor_exchange_ = exchange; }
  [[nodiscard]] const autograd::TensorExchange* tensor_exchange() const noexcept { return tensor_exchange_; }

  // KV caches of the model; by default in its dtype.
  void set_kv_cache(KvCacheElements elements) { kv_cache_ = std::move(elements); }
  [[nodiscard]] const KvCacheElements& kv_cache() const noexcept { return kv_cache_; }
  [[nodiscard]] KvCache make_cache(std::int64_t capacity) const;

  // Adds the weight "<name>.weight" [outputs,H] of a head over the final hidden states, such as the "score" of a reward
  // model. No linear layer: it is read through autograd::router_logits() or matmul(), and stays in high precision under
  // recipes and in exports. In FSDP a part of the final norm's unit. Call before weights are loaded and shared. Throws
  // invalid_argument for a name that the model has.
  Parameter& add_head(const std::string& name, std::int64_t outputs, const ParameterOptions& options);

  // Gives a tied model a head of its own with the values of the table; no-op for others. Unsharded models, before any
  // recipe or optimizer.
  void untie_head();

  // FSDP unit: parameters gathered and freed together. Order: embedding, layers, MTP layers, final norm, untied
  // head or copy of the table.
  struct Unit {
    std::string name;           // module path: "model.layers.3"
    std::int64_t layer = -1;    // index of a decoder or MTP layer, as passed to UnitHooks
    bool makes_logits = false;  // contains the head's weight
    std::vector<Parameter*> parameters;
  };
  [[nodiscard]] std::vector<Unit> units();
  // Hooks around each layer in every pass, in the order of ForwardContext::hooks. Must outlive the model's passes.
  void add_unit_hooks(const UnitHooks* hooks) { unit_hooks_.push_back(hooks); }
  void remove_unit_hooks(const UnitHooks* hooks) noexcept { std::erase(unit_hooks_, hooks); }
  // ForwardContext::mlp_tile_tokens of later contexts.
  void set_mlp_tile_tokens(std::int64_t tokens) noexcept { mlp_tile_tokens_ = tokens; }
  [[nodiscard]] bool weights_stay() const noexcept { return unit_hooks_.empty(); }

  // Fills every parameter from (seed, Hugging Face name, global element): independent of sharding and fusion.
  // Allocates deferred parameters.
  void initialize(std::uint64_t seed, const ParameterFilled& filled = {});

  [[nodiscard]] const ModelConfig& config() const noexcept { return config_; }
  [[nodiscard]] const ParameterOptions& options() const noexcept { return options_; }
  [[nodiscard]] Weight head_weight() const;
  // For one loss, with scale and soft cap of the logits; null: plain GEMMs. A tied head uses the embedding's recipe.
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms() const;
  // Rows of the embedding as the first layer reads them.
  [[nodiscard]] Variable scaled_embedding(const Variable& rows) const;

 private:
  struct Body final : Module {
    Body(const ModelConfig& config, const ParameterOptions& options, const std::vector<LayerRange>& chunks);
    std::optional<Embedding> embed_tokens;
    std::vector<std::unique_ptr<DecoderLayer>> layers;  // null: in no chunk
    std::vector<std::unique_ptr<MtpLayer>> mtp;
    std::optional<RmsNorm> norm;
  };

  struct AddedHead final : Module {
    explicit AddedHead(Parameter parameter) : weight(std::move(parameter)) { add_parameter("weight", weight); }
    Parameter weight;
  };

  using Pair = std::pair<Variable, Variable>;  // summed: the hidden state

  // Scaled rows of the embedding: of all tokens, or the rows of this rank of the tensor axis.
  [[nodiscard]] Variable first_hidden(const Tensor& ids, const ForwardContext& context) const;

  [[nodiscard]] Pair run_layer(std::size_t index, Variable residual, Variable delta,
                               const ForwardContext& context) const;
  [[nodiscard]] static Pair run_mtp(const MtpLayer& layer, const Variable& embedding, const Variable& hidden,
                                    const ForwardContext& context);

  ModelConfig config_;
  StreamSpec stream_;
  ParameterOptions options_;
  std::vector<LayerRange> chunks_;
  Body model_;
  std::optional<Linear> lm_head_;
  std::vector<std::unique_ptr<AddedHead>> added_heads_;
  std::vector<const UnitHooks*> unit_hooks_;
  std::int64_t mlp_tile_tokens_ = 0;
  const autograd::SequenceExchange* sequence_exchange_ = nullptr;
  const autograd::TensorExchange* tensor_exchange_ = nullptr;
  mutable LayerRotations rotations_;
  KvCacheElements kv_cache_;
};

// Whether `root` is a model that holds some of its layers alone (CausalLm::chunks()).
[[nodiscard]] bool is_part_of_model(const Module& root);

}  // namespace quench::nn
