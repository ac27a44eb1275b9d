#include "nn/decoder/mtp_layer.h"

#include "autograd/functions.h"

namespace quench::nn {

MtpLayer::SharedHead::SharedHead(const ModelConfig& config, const ParameterOptions& options)
    : norm(config.hidden_size, config.rms_norm_eps, options) {
  add_module("norm", norm);
}

MtpLayer::MtpLayer(const ModelConfig& config, const BlockSpec& block, const ParameterOptions& options)
    : DecoderLayer(config, block, options),
      embedding_norm_(config.hidden_size, config.rms_norm_eps, options),
      hidden_norm_(config.hidden_size, config.rms_norm_eps, options),
      projection_(2 * config.hidden_size, config.hidden_size,
                  {.init_std = config.initializer_range, .parameters = options}),
      shared_head_(config, options) {
  add_module("enorm", embedding_norm_);
  add_module("hnorm", hidden_norm_);
  add_module("eh_proj", projection_);
  add_module("shared_head", shared_head_);
}

std::pair<Variable, Variable> MtpLayer::forward_depth(const Variable& embedding, const Variable& hidden,
                                                      const ForwardContext& context) const {
  const Variable of_token = autograd::rms_norm(embedding, embedding_norm_.weight(), embedding_norm_.form());
  const Variable of_row = autograd::rms_norm(hidden, hidden_norm_.weight(), hidden_norm_.form());
  return forward(projection_.forward(autograd::concatenate_columns(of_token, of_row)), Variable(), context);
}

}  // namespace quench::nn
