// Granite 3 in llama.cpp.

#include <cmath>

#include "export/formats/gguf/architectures/architecture.h"

namespace quench {
namespace {

std::vector<GgufNumber> granite_gguf_numbers(const nn::ModelConfig& config) {
  return {{"attention.scale", static_cast<float>(config.block(0).attention.scale)},
          {"embedding_scale", static_cast<float>(config.stream.embedding_scale)},
          {"residual_scale", static_cast<float>(config.block(0).residual_multiplier)},
          {"logit_scale", static_cast<float>(1.0 / config.stream.logits_scale)}};
}

// Absent and 0: llama.cpp's default.
void read_granite_gguf(const GgufLookup& find, Json& config) {
  const auto set = [&](std::string_view member, std::string_view key, double otherwise) {
    const double written = find(key).value_or(0.0);
    config.set(member, written == 0 ? otherwise : std::stod(fmt::format("{}", static_cast<float>(written))));
  };
  set("attention_multiplier", "attention.scale",
      1.0 / std::sqrt(static_cast<double>(config.find("head_dim")->as_int())));
  set("embedding_multiplier", "embedding_scale", 1.0);
  set("residual_multiplier", "residual_scale", 1.0);
  set("logits_scaling", "logit_scale", 1.0);
}

}  // namespace

extern const GgufArchitecture kGgufGranite;
const GgufArchitecture kGgufGranite{.model_type = "granite",
                                    .name = "granite",
                                    .interleaved_rotation = true,
                                    .bias_is_chosen = true,
                                    .output_bias = true,
                                    .free_head_dim = true,
                                    .rope_divisors = true,
                                    .longrope = true,
                                    .scales = true,
                                    .numbers = granite_gguf_numbers,
                                    .read = read_granite_gguf};

}  // namespace quench
