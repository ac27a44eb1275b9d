#include "nn/decoder/decoder_layer.h"

#include <gtest/gtest.h>

#include "tests/nn/modules/layer_reference.h"

namespace quench::nn {
namespace {

using reference::expect_near;
using reference::fill;
using reference::make_context;
using reference::numbers;
using reference::piece;
using reference::rows_of;
using reference::small_config;

// h + attention(norm(h)), then that + mlp(norm(that)).
reference::Matrix exact(DecoderLayer& layer, const ModelConfig& c, const reference::Matrix& hidden) {
  const reference::Matrix mixed = reference::sum(
      hidden,
      reference::attention(layer, c, reference::normed(hidden, piece(layer, "input_layernorm.weight"), c.rms_norm_eps),
                           "self_attn."));
  return reference::sum(
      mixed,
      reference::mlp(layer, reference::normed(mixed, piece(layer, "post_attention_layernorm.weight"), c.rms_norm_eps),
                     "mlp."));
}

TEST(DecoderLayer, IsTheFormulaAndItsPairSumsToTheHiddenState) {
  for (const char* more : {"{}", R"({"model_type": "qwen3"})", R"({"attention_bias": true, "mlp_bias": true})"}) {
    SCOPED_TRACE(more);
    const ModelConfig config = small_config(more);
    DecoderLayer layer(config, config.block(0), {});
    fill(layer);
    const Tensor residual = numbers({6, config.hidden_size}, 1), delta = numbers({6, config.hidden_size}, 2);
    const ForwardContext context = make_context(config, {6});
    const auto output = [&](const Variable& a, const Variable& b) {
      const auto [stream, rest] = layer.forward(a, b, context);
      const reference::Matrix sum = reference::sum(rows_of(stream.value()), rows_of(rest.value()));
      const Tensor hidden = Tensor::empty({6, config.hidden_size}, DType::f32);
      for (std::size_t r = 0; r < sum.size(); ++r)
        for (std::size_t c = 0; c < sum[r].size(); ++c)
          hidden.data<float>()[static_cast<std::int64_t>(r) * config.hidden_size + static_cast<std::int64_t>(c)] =
              static_cast<float>(sum[r][c]);
      return hidden;
    };
    // The first layer has no delta; what later ones get counts as its sum.
    expect_near(output(Variable(residual), Variable()), exact(layer, config, rows_of(residual)), 1e-5);
    expect_near(output(Variable(residual), Variable(delta)),
                exact(layer, config, reference::sum(rows_of(residual), rows_of(delta))), 1e-5);
  }
}

}  // namespace
}  // namespace quench::nn
