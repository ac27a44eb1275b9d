#pragma once
// A feed-forward part of experts: a router sends every token to a few of them, whose outputs are summed with the
// router's weights (Shazeer et al., 2017, arXiv:1701.06538). No token is dropped, whatever the load.

#include "nn/config_reader.h"
#include "nn/expert_linear.h"
#include "nn/layer_part.h"

namespace quench::nn {

inline constexpr std::int64_t kMaxExperts = 65536;

class MoE final : public LayerPart {
 public:
  MoE(const ModelConfig& config, std::int64_t layer, const ParameterOptions& options);
  [[nodiscard]] Variable forward(const Variable& x, const ForwardContext& context) const override;
  // The router and the experts read x in different forms.
  [[nodiscard]] autograd::QuantRequest input_request() const override { return {}; }

 private:
  struct Router final : Module {
    Router(const ModelConfig& config, const ParameterOptions& options);
    void name_pieces(const std::string& prefix) override;
    std::string_view hf_path;
    Parameter weight;  // [E,H]; its product is f32
  };
  struct Experts final : Module {
    Experts(const ModelConfig& config, const ParameterOptions& options);
    ExpertLinear gate_up_proj;
    ExpertLinear down_proj;
  };

  std::int64_t layer_;
  std::int64_t per_token_;
  RouterRule rule_;
  Router gate_;
  Experts experts_;
};

// MoE in the layers that have experts, Mlp in the others.
[[nodiscard]] std::unique_ptr<LayerPart> make_feed_forward(const ModelConfig& config, std::int64_t layer,
                                                           const ParameterOptions& options);

// The load-balancing term that config.json asks for: router_aux_loss_coef where output_router_logits is true, as in
// Transformers.
void read_router_losses(ConfigReader& in, ModelConfig& config);

}  // namespace quench::nn
