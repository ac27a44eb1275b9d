// A model family as a plug-in: Llama whose feed-forward matrices are factored, W = A B of rank hidden_size / 4.
#include <quench/plugin.h>

#include <algorithm>

QUENCH_PLUGIN("thin_llama", "1.0")

namespace {

using namespace quench;

std::int64_t inner_rank(const nn::ModelConfig& config) {
  return std::max<std::int64_t>(config.hidden_size / 4, 1);
}

// As an nn.Module: submodules are registered by name, which gives their parameters names in checkpoints.
class ThinMlp final : public nn::SubLayer {
 public:
  ThinMlp(const nn::ModelConfig& config, const nn::BlockSpec&, const nn::ParameterOptions& options)
      : up_in_(config.hidden_size, inner_rank(config), {.init_std = config.initializer_range, .parameters = options}),
        gate_up_out_(
            inner_rank(config), 2 * config.intermediate_size,
            {.init_std = config.initializer_range,
             .parameters = options,
             .parts = {{"gate_out_proj", config.intermediate_size}, {"up_out_proj", config.intermediate_size}}}),
        down_in_(config.intermediate_size, inner_rank(config),
                 {.init_std = config.initializer_range, .parameters = options}),
        down_out_(inner_rank(config), config.hidden_size,
                  {.init_std = config.initializer_range, .parameters = options}) {
    add_module("up_in_proj", up_in_);
    add_module("gate_up_out_proj", gate_up_out_);
    add_module("down_in_proj", down_in_);
    add_module("down_out_proj", down_out_);
  }

  autograd::Variable forward(const autograd::Variable& x, const nn::ForwardContext&) const override {
    const autograd::Variable hidden = autograd::swiglu(gate_up_out_.forward(up_in_.forward(x)));
    return down_out_.forward(down_in_.forward(hidden));
  }
  // Low-precision recipes fuse the quantization of x into the norm before it.
  autograd::QuantOutputRequest input_quant_request() const override { return up_in_.input_quant_request(); }

 private:
  nn::Linear up_in_;        // A of gate and up
  nn::Linear gate_up_out_;  // B of gate and up in one matrix; two tensors in checkpoints (its parts)
  nn::Linear down_in_, down_out_;
};

// Members of config.json that this family reads besides the common ones: none. Attention, norms: as in Llama.
void apply(nn::ConfigReader&, nn::ModelConfig& config) {
  config.blocks = nn::decoder_blocks(config);
  for (nn::BlockSpec& block : config.blocks) block.feed_forward.make = nn::make_sublayer<ThinMlp>;
}

const Registered<nn::ModelFamily> kThinLlama{{
    .architecture = "ThinLlamaForCausalLM",
    .model_type = "thin_llama",
    .apply = apply,
}};

}  // namespace
