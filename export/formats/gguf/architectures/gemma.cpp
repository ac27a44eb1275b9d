// Gemma 2 and 3 in llama.cpp.

#include <cmath>

#include "export/formats/gguf/architectures/architecture.h"

namespace quench {
namespace {

constexpr GgufTensorName kGemmaGgufTensors[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
};

// llama.cpp derives from the layer count alone whether scores are scaled by the width of a head or by hidden_size /
// heads, and has one pattern of windowed layers.
struct GemmaLoader {
  std::int64_t period, layers_of_27b;
  bool capped;  // with soft caps of scores and logits

  [[nodiscard]] bool windowed(std::int64_t layer) const { return (layer + 1) % period != 0; }
};
constexpr GemmaLoader kGemma2Loader{2, 46, true}, kGemma3Loader{6, 62, false};

double llama_cpp_scalar(const GemmaLoader& loader, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                        std::int64_t head_dim) {
  return layers == loader.layers_of_27b ? static_cast<double>(hidden / heads) : static_cast<double>(head_dim);
}

double score_scale_of(const nn::ModelConfig& c, const GemmaLoader& loader) {
  return 1.0 /
         std::sqrt(llama_cpp_scalar(loader, c.num_hidden_layers, c.hidden_size, c.num_attention_heads, c.head_dim));
}
double score_scale2(const nn::ModelConfig& config) {
  return score_scale_of(config, kGemma2Loader);
}
double score_scale3(const nn::ModelConfig& config) {
  return score_scale_of(config, kGemma3Loader);
}

std::string gguf_problem_of(const nn::ModelConfig& c, const GemmaLoader& loader) {
  for (const nn::BlockSpec& block : c.blocks)
    if ((block.attention.window > 0) != loader.windowed(block.layer))
      return fmt::format("layer_types: llama.cpp has full attention in every layer number {} of this architecture",
                         loader.period);
  if (c.local_rope && *c.local_rope != nn::RopeScaling{})
    return "RoPE of windowed layers: llama.cpp has base 10000 and no scaling";
  const bool capped = c.block(0).attention.soft_cap > 0;
  if (capped != loader.capped || (loader.capped && c.stream.logits_soft_cap == 0))
    return fmt::format("attn_logit_softcapping and final_logit_softcapping: llama.cpp has {} in this architecture",
                       loader.capped ? "both" : "no cap of scores");
  return {};
}
std::string gguf_problem2(const nn::ModelConfig& config) {
  return gguf_problem_of(config, kGemma2Loader);
}
std::string gguf_problem3(const nn::ModelConfig& config) {
  return gguf_problem_of(config, kGemma3Loader);
}

std::vector<GgufNumber> gguf_numbers(const nn::ModelConfig& config) {
  std::vector<GgufNumber> numbers{{"attention.sliding_window", static_cast<std::uint32_t>(config.sliding_window)}};
  if (const double cap = config.block(0).attention.soft_cap; cap > 0)
    numbers.push_back({"attn_logit_softcapping", static_cast<float>(cap)});
  if (const double cap = config.stream.logits_soft_cap; cap > 0)
    numbers.push_back({"final_logit_softcapping", static_cast<float>(cap)});
  return numbers;
}

void read_gguf(const GgufLookup& find, const GemmaLoader& loader, Json& config) {
  const auto size = [&](std::string_view key) { return config.find(key)->as_int(); };
  const std::int64_t layers = size("num_hidden_layers");
  config.set("sliding_window", static_cast<std::int64_t>(find("attention.sliding_window").value_or(4096)));
  const double scalar =
      llama_cpp_scalar(loader, layers, size("hidden_size"), size("num_attention_heads"), size("head_dim"));
  config.set("query_pre_attn_scalar", static_cast<std::int64_t>(scalar));
  config.set("hidden_activation", *config.find("hidden_act"));
  Json types = Json::array();
  for (std::int64_t layer = 0; layer < layers; ++layer)
    types.push_back(Json(loader.windowed(layer) ? "sliding_attention" : "full_attention"));
  config.set("layer_types", std::move(types));
}
void read_gguf2(const GgufLookup& find, Json& config) {
  read_gguf(find, kGemma2Loader, config);
  config.set("attn_logit_softcapping", find("attn_logit_softcapping").value_or(50.0));
  config.set("final_logit_softcapping", find("final_logit_softcapping").value_or(30.0));
}
void read_gguf3(const GgufLookup& find, Json& config) {
  read_gguf(find, kGemma3Loader, config);
  config.set("rope_local_base_freq", find("rope.freq_base_swa").value_or(1e4));
  if (const auto cap = find("final_logit_softcapping"); cap && *cap > 0) config.set("final_logit_softcapping", *cap);
}

}  // namespace

extern const GgufArchitecture kGgufGemma2, kGgufGemma3;
const GgufArchitecture kGgufGemma2{.model_type = "gemma2",
                                   .name = "gemma2",
                                   .free_head_dim = true,
                                   .layer_tensors = kGemmaGgufTensors,
                                   .norm_offset = 1.0f,
                                   .sliding_window = true,
                                   .score_scale = score_scale2,
                                   .problem = gguf_problem2,
                                   .numbers = gguf_numbers,
                                   .read = read_gguf2};

const GgufArchitecture kGgufGemma3{.model_type = "gemma3_text",
                                   .name = "gemma3",
                                   .free_head_dim = true,
                                   .layer_tensors = kGemmaGgufTensors,
                                   .norm_offset = 1.0f,
                                   .sliding_window = true,
                                   .score_scale = score_scale3,
                                   .problem = gguf_problem3,
                                   .numbers = gguf_numbers,
                                   .read = read_gguf3};

}  // namespace quench
