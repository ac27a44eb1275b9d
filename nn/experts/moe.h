#pragma once
// Mixture of experts (Shazeer et al., 2017, arXiv:1701.06538). No token is dropped.

#include <optional>

#include "autograd/token_dispatcher.h"
#include "nn/experts/expert_linear.h"
#include "nn/modules/mlp.h"
#include "nn/modules/sublayer.h"
#include "nn/spec/config_reader.h"

namespace quench::nn {

inline constexpr std::int64_t kMaxExperts = 65536;

class MoE final : public SubLayer {
 public:
  MoE(const ModelConfig& config, const BlockSpec& block, const ParameterOptions& options);
  [[nodiscard]] Variable forward(const Variable& x, const ForwardContext& context) const override;
  [[nodiscard]] bool is_rowwise() const override { return true; }
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request() const override { return {}; }

  // Token dispatcher of expert parallelism, from the next pass; nullptr: all experts are local. Must outlive the
  // passes.
  void set_token_dispatcher(const autograd::TokenDispatcher* dispatcher) noexcept { dispatcher_ = dispatcher; }
  // Expert bias f32 [E], local rows; null without one.
  [[nodiscard]] Parameter* expert_bias() noexcept { return gate_.expert_bias ? &*gate_.expert_bias : nullptr; }
  [[nodiscard]] std::int64_t layer() const noexcept { return layer_; }

 private:
  MoE(const ModelConfig& config, const BlockSpec& block, const ExpertsSpec& spec, const ParameterOptions& options);

  struct Router final : Module {
    Router(const ModelConfig& config, const ExpertsSpec& spec, const ParameterOptions& options);
    void name_pieces(const std::string& prefix) override;
    std::string_view hf_path, hf_bias;
    Parameter weight;               // [E,H]; output f32
    std::optional<Parameter> bias;  // [E], of the logits
    std::optional<Parameter> expert_bias;
  };
  // Sigmoid of a logit per token, on the shared expert's output (Qwen2-MoE).
  struct SharedGate final : Module {
    SharedGate(const ModelConfig& config, const ParameterOptions& options);
    Parameter weight;  // [1,H]; output f32
  };
  struct Experts final : Module {
    Experts(const ModelConfig& config, const ExpertsSpec& spec, const ParameterOptions& options);
    ExpertLinear gate_up_proj;
    ExpertLinear down_proj;
  };

  [[nodiscard]] Variable run_shared(const Variable& x, const ForwardContext& context) const;
  [[nodiscard]] Variable run_experts(const Variable& x, const Variable& weights, const autograd::TokenPermutation& rows,
                                     bool recompute_gate_up) const;
  // `rows` sort x by expert, without padding.
  [[nodiscard]] Variable run_expert_parallel(const Variable& x, const autograd::Routing& routing,
                                             bool recompute_gate_up) const;
  [[nodiscard]] std::int64_t alignment(Device device) const;

  std::int64_t layer_;
  std::int64_t per_token_;
  RouterRule rule_;
  bool score_before_experts_;
  std::optional<ClampedUnit> clamped_;
  Router gate_;
  Experts experts_;
  std::optional<Mlp> shared_;
  std::optional<SharedGate> shared_gate_;
  const autograd::TokenDispatcher* dispatcher_ = nullptr;
};

// Load-balancing loss of config.json: router_aux_loss_coef if output_router_logits is true, as in Transformers.
void read_router_losses(ConfigReader& in, ModelConfig& config);

}  // namespace quench::nn
