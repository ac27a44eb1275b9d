// Gemma 2 (arXiv:2408.00118) and the text model of Gemma 3 (arXiv:2503.19786): norms with weight + 1 before and after
// each sublayer, GeGLU, scaled embeddings, sliding windows in most layers; Gemma 2 with soft caps, Gemma 3 with norms
// of queries and keys and another RoPE base in windowed layers.

#include <algorithm>
#include <cmath>

#include "nn/models/decoder_block.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

constexpr std::string_view kFullLayer = "full_attention", kWindowedLayer = "sliding_attention";
constexpr std::string_view kGeluTanh = "gelu_pytorch_tanh", kScoreCap = "attn_logit_softcapping";
constexpr std::int64_t kDefaultGemmaWindow = 4096, kGemmaHeadDim = 256;

// In `layers` layers, every `period`-th has full attention.
std::vector<bool> windowed_by_period(std::int64_t layers, std::int64_t period) {
  std::vector<bool> windowed;
  for (std::int64_t layer = 0; layer < layers; ++layer) windowed.push_back((layer + 1) % period != 0);
  return windowed;
}

std::vector<bool> read_windowed(ConfigReader& in, std::int64_t layers, std::int64_t period) {
  const Json* list = in.find("layer_types");
  if (list == nullptr) return windowed_by_period(layers, period);
  std::vector<bool> windowed;
  if (!list->is_array() || static_cast<std::int64_t>(list->as_array().size()) != layers) {
    in.fault("layer_types", fmt::format("expected a list of {} names, one a layer", layers));
    return windowed_by_period(layers, period);
  }
  for (const Json& type : list->as_array()) {
    if (type != Json(kFullLayer) && type != Json(kWindowedLayer))
      in.fault("layer_types",
               fmt::format("{} is not supported; known: {}, {}", type.dump(), kFullLayer, kWindowedLayer));
    windowed.push_back(type == Json(kWindowedLayer));
  }
  return windowed;
}

NormSpec gemma_norm(std::string_view name, const ModelConfig& config) {
  return {name, {config.rms_norm_eps, 1.0f, true}};
}

void make_gemma_blocks(const std::vector<bool>& windowed, double score_scale, double score_cap, ModelConfig& config) {
  config.blocks = decoder_blocks(config, {.windowed = windowed});
  for (BlockSpec& block : config.blocks) {
    block.attention.scale = score_scale;
    block.attention.soft_cap = score_cap;
    block.attention.norm = gemma_norm("input_layernorm", config);
    block.attention.post_norm = gemma_norm("post_attention_layernorm", config);
    block.feed_forward.norm = gemma_norm("pre_feedforward_layernorm", config);
    block.feed_forward.post_norm = gemma_norm("post_feedforward_layernorm", config);
    block.feed_forward.activation = GatedActivation::gelu_tanh;
  }
}

void read_gemma(ConfigReader& in, ModelConfig& config, std::int64_t period) {
  if (const std::string activation = in.string("hidden_activation", std::string(kGeluTanh)); activation != kGeluTanh)
    in.fault("hidden_activation", fmt::format("'{}' is not supported; known: {}", activation, kGeluTanh));
  config.qkv_bias = config.output_bias = in.boolean("attention_bias", false);
  const double score_scale = 1.0 / std::sqrt(in.number("query_pre_attn_scalar", 256.0, true));
  // null: none; 0 would divide by zero in Transformers.
  const auto soft_cap = [&](std::string_view key, double fallback) {
    const Json* value = in.json().find(key);
    return value != nullptr && value->is_null() ? 0.0 : value == nullptr ? fallback : in.number(key, 1.0, true);
  };
  const bool second = config.model_type == "gemma2";
  double score_cap = soft_cap(kScoreCap, second ? 50.0 : 0.0);
  if (!second && score_cap > 0) {  // Transformers' Gemma3Attention does not apply it
    score_cap = 0.0;
    config.unknown_fields.emplace_back(kScoreCap);
  }
  config.stream = {.norm = gemma_norm("norm", config),
                   .embedding_scale = std::sqrt(static_cast<double>(config.hidden_size)),
                   .embedding_scale_rounded = true,
                   .logits_soft_cap = soft_cap("final_logit_softcapping", second ? 30.0 : 0.0)};
  const Json* window = in.json().find("sliding_window");
  config.sliding_window =
      window != nullptr && window->is_null() ? 0 : in.integer("sliding_window", kDefaultGemmaWindow, 1, INT32_MAX);
  const std::vector<bool> windowed = read_windowed(in, config.num_hidden_layers, period);
  if (config.sliding_window == 0 && std::ranges::count(windowed, true) > 0)
    in.fault("sliding_window", fmt::format("is null, but layer_types has layers of type {}", kWindowedLayer));
  make_gemma_blocks(windowed, score_scale, score_cap, config);
}

void read_gemma2(ConfigReader& in, ModelConfig& config) {
  read_gemma(in, config, 2);
}
void read_gemma3(ConfigReader& in, ModelConfig& config) {
  read_gemma(in, config,
             in.integer("sliding_window_pattern", in.integer("_sliding_window_pattern", 6, 1, 10000), 1, 10000));
  for (BlockSpec& block : config.blocks) {
    block.attention.qk_norm = QkNorm::weighted;
    block.attention.qk_form = block.attention.norm.form;
  }
}

void write_gemma(const ModelConfig& config, Json& json) {
  const auto number = [](double value) { return std::stod(fmt::format("{:.9g}", value)); };
  const auto cap = [&](double value) { return value > 0 ? Json(number(value)) : Json(); };
  const AttentionSpec& attention = config.block(0).attention;
  json.set("hidden_activation", kGeluTanh);
  json.set("attention_bias", config.qkv_bias);
  const double scalar = number(1.0 / (attention.scale * attention.scale));
  json.set("query_pre_attn_scalar",
           scalar == std::floor(scalar) ? Json(static_cast<std::int64_t>(scalar)) : Json(scalar));
  json.set("attn_logit_softcapping", cap(attention.soft_cap));
  json.set("final_logit_softcapping", cap(config.stream.logits_soft_cap));
  json.set("sliding_window", config.sliding_window > 0 ? Json(config.sliding_window) : Json());
  Json types = Json::array();
  for (const BlockSpec& block : config.blocks)
    types.push_back(Json(block.attention.window > 0 ? kWindowedLayer : kFullLayer));
  json.set("layer_types", std::move(types));
}

constexpr ModelDefaults kGemma2Defaults{.max_position_embeddings = 8192,
                                        .hidden_act = kGeluTanh,
                                        .vocab_size = 256000,
                                        .hidden_size = 2304,
                                        .intermediate_size = 9216,
                                        .num_hidden_layers = 26,
                                        .num_attention_heads = 8,
                                        .num_key_value_heads = 4,
                                        .head_dim = kGemmaHeadDim,
                                        .tie_word_embeddings = true};

constexpr ModelDefaults gemma3_defaults() {
  ModelDefaults defaults = kGemma2Defaults;
  defaults.max_position_embeddings = 131072;
  defaults.rope_theta = 1e6;
  defaults.local_rope_theta = 1e4;
  defaults.vocab_size = 262208;
  return defaults;
}

}  // namespace

extern const ModelFamily kGemma2, kGemma3;
const ModelFamily kGemma2{.architecture = "Gemma2ForCausalLM",
                          .model_type = "gemma2",
                          .apply = read_gemma2,
                          .write = write_gemma,
                          .members = {{.name = "hidden_activation",
                                       .type = ConfigMember::Type::text,
                                       .help = "Activation of the gated MLP (Gemma).",
                                       .refusal = "another key than hidden_act",
                                       .neutral = "[\"silu\"]"},
                                      {.name = "query_pre_attn_scalar",
                                       .type = ConfigMember::Type::positive_number,
                                       .help = "Scores are divided by its square root (Gemma).",
                                       .refusal = "scale factors between the layers"},
                                      {.name = "attn_logit_softcapping",
                                       .type = ConfigMember::Type::positive_number,
                                       .help = "Soft cap of attention scores (Gemma 2).",
                                       .refusal = "soft caps on logits",
                                       .neutral = "[0]"},
                                      {.name = "final_logit_softcapping",
                                       .type = ConfigMember::Type::positive_number,
                                       .help = "Soft cap of the head's logits (Gemma 2).",
                                       .refusal = "soft caps on logits",
                                       .neutral = "[0]"}},
                          .executes = {"attention_bias", "sliding_window", "layer_types"},
                          .defaults = kGemma2Defaults};

const ModelFamily kGemma3{
    .architecture = "Gemma3ForCausalLM",
    .model_type = "gemma3_text",
    .apply = read_gemma3,
    .write = write_gemma,
    .members = {{.name = "rope_local_base_freq",
                 .type = ConfigMember::Type::positive_number,
                 .help = "RoPE base of the layers with a sliding window (Gemma 3).",
                 .refusal = "RoPE of its own in some layers of this family"},
                {.name = "sliding_window_pattern",
                 .help = "Without layer_types: layers per layer with full attention, the last of each group (Gemma 3).",
                 .refusal = "a sliding window in this family"}},
    .executes = {"attention_bias", "hidden_activation", "query_pre_attn_scalar", "sliding_window", "layer_types",
                 "attn_logit_softcapping", "final_logit_softcapping"},
    .defaults = gemma3_defaults(),
    .multimodal_architecture = "Gemma3ForConditionalGeneration"};

}  // namespace quench::nn
