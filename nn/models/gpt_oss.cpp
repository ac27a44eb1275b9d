// gpt-oss (OpenAI, 2025, arXiv:2508.10925): attention sinks, a sliding window in every other layer, biases everywhere,
// a clamped unit in experts.

#include <algorithm>

#include "nn/experts/moe.h"
#include "nn/models/decoder_block.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

constexpr std::string_view kGptOssFull = "full_attention", kGptOssWindowed = "sliding_attention";
constexpr std::int64_t kGptOssWindow = 128;
const RopeScaling kGptOssRope{.type = RopeScaling::Type::yarn,
                              .theta = 150000.0,
                              .factor = 32.0,
                              .original_max_position_embeddings = 4096,
                              .attention_factor = std::nullopt,
                              .mscale = std::nullopt,
                              .mscale_all_dim = std::nullopt,
                              .truncate = false};

std::vector<bool> read_gpt_oss_windows(ConfigReader& in, std::int64_t layers) {
  std::vector<bool> windowed;
  const Json* list = in.find("layer_types");
  if (list == nullptr || !list->is_array() || static_cast<std::int64_t>(list->as_array().size()) != layers) {
    if (list != nullptr) in.fault("layer_types", fmt::format("expected a list of {} names, one a layer", layers));
    for (std::int64_t layer = 0; layer < layers; ++layer) windowed.push_back(layer % 2 == 0);
    return windowed;
  }
  for (const Json& type : list->as_array()) {
    if (type != Json(kGptOssFull) && type != Json(kGptOssWindowed))
      in.fault("layer_types",
               fmt::format("{} is not supported; known: {}, {}", type.dump(), kGptOssFull, kGptOssWindowed));
    windowed.push_back(type == Json(kGptOssWindowed));
  }
  return windowed;
}

NormSpec gpt_oss_norm(std::string_view name, const ModelConfig& config) {
  return {name, {config.rms_norm_eps, 0.0f, true}};
}

void read_gpt_oss(ConfigReader& in, ModelConfig& config) {
  config.qkv_bias = config.output_bias = in.boolean("attention_bias", true);
  const Json* window = in.json().find("sliding_window");
  config.sliding_window =
      window != nullptr && window->is_null() ? 0 : in.integer("sliding_window", kGptOssWindow, 1, INT32_MAX);
  const std::vector<bool> windowed = read_gpt_oss_windows(in, config.num_hidden_layers);
  if (config.sliding_window == 0 && std::ranges::count(windowed, true) > 0)
    in.fault("sliding_window", fmt::format("is null, but layer_types has layers of type {}", kGptOssWindowed));
  if (in.find("rope_scaling") == nullptr && in.find("rope_parameters") == nullptr) {
    const double theta = config.rope.theta;
    config.rope = kGptOssRope;
    config.rope.theta = theta;
  }
  ExpertsSpec& experts = config.experts;
  const std::string_view count = in.find("num_local_experts") != nullptr ? "num_local_experts" : "num_experts";
  experts.count = in.integer(count, 128, 1, kMaxExperts);
  experts.per_token = in.integer("num_experts_per_tok", 4, 1, kMaxExperts);
  experts.intermediate_size = config.intermediate_size;
  experts.normalize = true;  // a softmax over the top-k logits
  experts.bias = experts.router_bias = true;
  experts.clamped = ClampedUnit{.slope = static_cast<float>(in.number("swiglu_alpha", 1.702, true)),
                                .limit = static_cast<float>(in.number("swiglu_limit", 7.0, true))};
  experts.fused_storage = experts.interleaved_storage = true;
  experts.names.router = "mlp.router";
  read_router_losses(in, config);
  config.blocks = decoder_blocks(config, {.windowed = windowed});
  for (BlockSpec& block : config.blocks) {
    block.attention.norm = gpt_oss_norm("input_layernorm", config);
    block.attention.sinks = true;
    block.feed_forward.norm = gpt_oss_norm("post_attention_layernorm", config);
  }
  config.stream.norm = gpt_oss_norm("norm", config);
}

void write_gpt_oss(const ModelConfig& config, Json& json) {
  const auto number = [](float value) { return std::stod(fmt::format("{}", value)); };
  json.set("attention_bias", config.qkv_bias);
  json.set("sliding_window", config.sliding_window > 0 ? Json(config.sliding_window) : Json());
  Json types = Json::array();
  for (const BlockSpec& block : config.blocks)
    types.push_back(Json(block.attention.window > 0 ? kGptOssWindowed : kGptOssFull));
  json.set("layer_types", std::move(types));
  json.set("num_local_experts", config.experts.count);
  json.set("num_experts_per_tok", config.experts.per_token);
  // Absent, Transformers 4 has a scaling.
  if (config.rope.type == RopeScaling::Type::standard) json.set("rope_scaling", Json());
  json.set("swiglu_alpha", number(config.experts.clamped->slope));
  json.set("swiglu_limit", number(config.experts.clamped->limit));
}

}  // namespace

extern const ModelFamily kGptOss;
const ModelFamily kGptOss{
    .architecture = "GptOssForCausalLM",
    .model_type = "gpt_oss",
    .apply = read_gpt_oss,
    .write = write_gpt_oss,
    .members = {{.name = "swiglu_alpha",
                 .type = ConfigMember::Type::positive_number,
                 .help = "Factor within the sigmoid of the experts' clamped unit (gpt-oss).",
                 .refusal = "a clamped unit in experts"},
                {.name = "swiglu_limit",
                 .type = ConfigMember::Type::positive_number,
                 .help = "Bound of gate and up in the experts' clamped unit (gpt-oss).",
                 .refusal = "a clamped unit in experts"}},
    .executes = {"attention_bias", "sliding_window", "layer_types", "num_local_experts", "num_experts",
                 "num_experts_per_tok", "router_aux_loss_coef", "output_router_logits"},
    .defaults = {.max_position_embeddings = 131072,
                 .rms_norm_eps = 1e-5,
                 .rope_theta = 150000.0,
                 .vocab_size = 201088,
                 .hidden_size = 2880,
                 .intermediate_size = 2880,
                 .num_hidden_layers = 36,
                 .num_attention_heads = 64,
                 .num_key_value_heads = 8,
                 .head_dim = 64}};

}  // namespace quench::nn
