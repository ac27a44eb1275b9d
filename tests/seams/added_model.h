#pragma once
// A model family that the table's file does not know: Llama with ReGLU (added_op.h) in place of SwiGLU.

#include "core/system/choice_table.h"
#include "export/formats/gguf/architectures/architecture.h"
#include "nn/models/decoder_block.h"
#include "nn/modules/linear.h"
#include "nn/modules/sublayer.h"
#include "nn/spec/model_family.h"
#include "tests/seams/added_op.h"

namespace quench::testing {

class RegluMlp final : public nn::SubLayer {
 public:
  RegluMlp(const nn::ModelConfig& config, const nn::BlockSpec&, const nn::ParameterOptions& options)
      : gate_up_proj_(config.hidden_size, 2 * config.intermediate_size,
                      {.init_std = config.initializer_range,
                       .parameters = options,
                       .parts = {{"gate_proj", config.intermediate_size}, {"up_proj", config.intermediate_size}}}),
        down_proj_(config.intermediate_size, config.hidden_size,
                   {.init_std = config.initializer_range, .parameters = options}) {
    add_module("gate_up_proj", gate_up_proj_);
    add_module("down_proj", down_proj_);
  }
  [[nodiscard]] autograd::Variable forward(const autograd::Variable& x, const nn::ForwardContext&) const override {
    return down_proj_.forward(reglu(gate_up_proj_.forward(x)));
  }
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request() const override {
    return gate_up_proj_.input_quant_request();
  }

 private:
  nn::Linear gate_up_proj_;
  nn::Linear down_proj_;
};

inline void apply_reglu(nn::ConfigReader& in, nn::ModelConfig& config) {
  config.qkv_bias = in.boolean("attention_bias", false);
  config.blocks = nn::decoder_blocks(config);
  for (nn::BlockSpec& block : config.blocks) block.feed_forward.make = nn::make_sublayer<RegluMlp>;
}
inline void write_reglu(const nn::ModelConfig& config, Json& json) {
  json.set("attention_bias", config.qkv_bias);
}

inline const Registered<nn::ModelFamily> kReglu{{.architecture = "RegluForCausalLM",
                                                 .model_type = "reglu",
                                                 .apply = apply_reglu,
                                                 .write = write_reglu,
                                                 .executes = {"attention_bias"}}};
inline const Registered<GgufArchitecture> kRegluGguf{{.model_type = "reglu", .name = "reglu-cpp"}};

}  // namespace quench::testing
