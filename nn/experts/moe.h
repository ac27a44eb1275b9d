#pragma once
// A feed-forward part of experts: a router sends every token to a few of them, whose outputs are summed with the
// router's weights (Shazeer et al., 2017, arXiv:1701.06538). No token is dropped, whatever the load.

#include <optional>

#include "autograd/token_dispatcher.h"
#include "nn/config_reader.h"
#include "nn/experts/expert_linear.h"
#include "nn/mlp.h"
#include "nn/sublayer.h"

namespace quench::nn {

inline constexpr std::int64_t kMaxExperts = 65536;

class MoE final : public SubLayer {
 public:
  MoE(const ModelConfig& config, std::int64_t layer, const ParameterOptions& options);
  [[nodiscard]] Variable forward(const Variable& x, const ForwardContext& context) const override;
  // The router and the experts read x in different forms.
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request() const override { return {}; }

  // Where the experts are shared out among processes: rows go to their experts and come back through it, from the next
  // pass on. It outlives the passes; nullptr: all experts are here.
  void set_token_dispatcher(const autograd::TokenDispatcher* dispatcher) noexcept { dispatcher_ = dispatcher; }
  // f32 [E], the rows that this process holds; null where the router has none. Whoever balances the load changes it
  // between steps.
  [[nodiscard]] Parameter* expert_bias() noexcept { return gate_.expert_bias ? &*gate_.expert_bias : nullptr; }
  [[nodiscard]] std::int64_t layer() const noexcept { return layer_; }

 private:
  struct Router final : Module {
    Router(const ModelConfig& config, const ParameterOptions& options);
    void name_pieces(const std::string& prefix) override;
    std::string_view hf_path, hf_bias;
    Parameter weight;  // [E,H]; its product is f32
    std::optional<Parameter> expert_bias;
  };
  struct Experts final : Module {
    Experts(const ModelConfig& config, const ParameterOptions& options);
    ExpertLinear gate_up_proj;
    ExpertLinear down_proj;
  };

  // What the experts make of x, each token's with its weights.
  [[nodiscard]] Variable run_experts(const Variable& x, const Variable& weights, const autograd::TokenPermutation& rows,
                                     bool recompute_gate_up) const;
  // The same where experts stand on several processes. `rows` sort x by expert, without padding.
  [[nodiscard]] Variable run_expert_parallel(const Variable& x, const autograd::Routing& routing,
                                             bool recompute_gate_up) const;
  // Multiple that the rows of an expert form where it computes.
  [[nodiscard]] std::int64_t alignment(Device device) const;

  std::int64_t layer_;
  std::int64_t per_token_;
  RouterRule rule_;
  bool score_before_experts_;
  Router gate_;
  Experts experts_;
  std::optional<Mlp> shared_;
  const autograd::TokenDispatcher* dispatcher_ = nullptr;
};

// MoE in the layers that have experts, Mlp in the others.
[[nodiscard]] std::unique_ptr<SubLayer> make_feed_forward(const ModelConfig& config, std::int64_t layer,
                                                          const ParameterOptions& options);

// The load-balancing term that config.json asks for: router_aux_loss_coef where output_router_logits is true, as in
// Transformers.
void read_router_losses(ConfigReader& in, ModelConfig& config);

}  // namespace quench::nn
