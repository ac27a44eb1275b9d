// Llama 4 (Scout, Maverick), text model (Hugging Face Transformers, modeling_llama4): MoE with sigmoid scores on expert
// inputs and a shared expert; RoPE and chunked attention in most layers, neither in the others.

#include "nn/experts/moe.h"
#include "nn/models/decoder_block.h"
#include "nn/models/rotated_layers.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

constexpr std::string_view kFull = "full_attention", kChunked = "chunked_attention";

// Boolean that early Meta files store as a number: 0 is false.
bool switched_on(ConfigReader& in, std::string_view key, bool fallback) {
  const Json* value = in.find(key);
  if (value != nullptr && value->is_integer()) return value->as_double() != 0;
  return in.boolean(key, fallback);
}

// nullopt if null.
std::optional<std::vector<bool>> layers_named(ConfigReader& in, std::string_view key, std::int64_t count) {
  const Json* list = in.find(key);
  if (list == nullptr) return std::nullopt;
  std::vector<bool> layers(static_cast<std::size_t>(count), false);
  if (!list->is_array()) {
    in.fault(key, fmt::format("expected a list of layers, got {}", list->dump()));
    return layers;
  }
  for (const Json& layer : list->as_array()) {
    if (layer.is_integer() && layer.as_double() >= 0 && layer.as_double() < static_cast<double>(count))
      layers[static_cast<std::size_t>(layer.as_int())] = true;
    else
      in.fault(key, fmt::format("{} is no layer of this model", layer.dump()));
  }
  return layers;
}

std::vector<bool> every(std::int64_t step, std::int64_t count) {
  std::vector<bool> layers;
  for (std::int64_t layer = 0; layer < count; ++layer) layers.push_back((layer + 1) % step == 0);
  return layers;
}

// Layers of chunked attention; without layer_types the rotated ones.
std::vector<bool> read_chunked(ConfigReader& in, const std::vector<bool>& rotated) {
  const Json* list = in.find("layer_types");
  if (list == nullptr) return rotated;
  std::vector<bool> chunked = rotated;
  if (!list->is_array() || list->as_array().size() != rotated.size()) {
    in.fault("layer_types", fmt::format("expected a list of {} names, one a layer", rotated.size()));
    return chunked;
  }
  for (std::size_t layer = 0; layer < chunked.size(); ++layer) {
    const Json& type = list->as_array()[layer];
    if (type == Json(kFull) || type == Json(kChunked))
      chunked[layer] = type == Json(kChunked);
    else
      in.fault("layer_types", fmt::format("{} is not supported; known: {}, {}", type.dump(), kFull, kChunked));
  }
  return chunked;
}

// Attention of all layers; which have what is read apart.
struct Llama4Attention {
  std::int64_t chunk = 0;  // AttentionSpec::chunk in chunked layers
  bool unit_norm = false;  // QkNorm::unweighted in rotated layers
  double temperature = 0;  // QueryTemperature in layers without RoPE; 0: none
  double temperature_step = 1;
};

Llama4Attention read_llama4_attention(ConfigReader& in) {
  Llama4Attention attention{.chunk = in.integer("attention_chunk_size", 8192, 1, kMaxDimension)};
  // As in Transformers.
  if (const Json* size = in.json().find("attention_chunk_size"); size != nullptr && size->is_null())
    in.fault("attention_chunk_size",
             "null is not supported: name a size, or full_attention for each layer in layer_types");
  attention.unit_norm = in.boolean("use_qk_norm", true);
  const double scale = in.number("attn_scale", 0.1, false);
  attention.temperature_step = in.number("floor_scale", 8192, true);
  if (switched_on(in, "attn_temperature_tuning", true)) attention.temperature = scale;
  return attention;
}

void make_llama4_blocks(ConfigReader& in, const std::vector<bool>& sparse, ModelConfig& config) {
  const std::vector<bool> rotated = read_rotated_layers(in, config.num_hidden_layers);
  const std::vector<bool> chunked = read_chunked(in, rotated);
  const Llama4Attention all = read_llama4_attention(in);
  config.blocks = decoder_blocks(config, {.rotated = rotated, .sparse = sparse});
  for (BlockSpec& block : config.blocks) {
    AttentionSpec& attention = block.attention;
    if (chunked[static_cast<std::size_t>(block.layer)]) attention.chunk = all.chunk;
    if (attention.rotary) {
      attention.rotary->interleaved = true;
      if (all.unit_norm) attention.qk_norm = QkNorm::unweighted;
    } else if (all.temperature != 0.0) {
      attention.temperature = QueryTemperature{.scale = all.temperature, .step = all.temperature_step};
    }
    block.feed_forward.name = "feed_forward";
  }
}

// Returns LayerKinds::sparse.
std::vector<bool> apply_llama4_experts(ConfigReader& in, ModelConfig& config) {
  ExpertsSpec& experts = config.experts;
  experts.count = in.integer("num_local_experts", 16, 1, kMaxExperts);
  experts.per_token = in.integer("num_experts_per_tok", 1, 1, kMaxExperts);
  experts.intermediate_size = experts.shared_width = config.intermediate_size;
  experts.sigmoid = true;
  experts.score_before_experts = true;
  experts.fused_storage = true;
  experts.names = {.router = "feed_forward.router", .experts = "feed_forward.experts", .shared = "shared_expert"};
  const std::int64_t step = in.integer("interleave_moe_layer_step", 1, 1, kMaxDimension);
  const auto named = layers_named(in, "moe_layers", config.num_hidden_layers);
  // Transformers' class adds no router loss, regardless of output_router_logits and router_aux_loss_coef.
  return named ? *named : every(step, config.num_hidden_layers);
}

void read_llama4(ConfigReader& in, ModelConfig& config) {
  if (in.find("head_dim") == nullptr) config.head_dim = 128;
  if (in.json().find("num_key_value_heads") == nullptr) config.num_key_value_heads = 8;
  config.qkv_bias = config.output_bias = in.boolean("attention_bias", false);
  const std::vector<bool> sparse = apply_llama4_experts(in, config);
  config.intermediate_size = in.integer("intermediate_size_mlp", 16384, 1, kMaxDimension);
  make_llama4_blocks(in, sparse, config);
}

void write_llama4(const ModelConfig& config, Json& json) {
  ConfigReader in(json, "config.json");
  const Llama4Attention all = read_llama4_attention(in);  // also what no layer has
  const ExpertsSpec& experts = config.experts;
  json.set("intermediate_size", experts.intermediate_size);
  json.set("intermediate_size_mlp", config.intermediate_size);
  json.set("num_local_experts", experts.count);
  json.set("num_experts_per_tok", experts.per_token);
  Json sparse = Json::array(), types = Json::array();
  for (const BlockSpec& block : config.blocks) {
    if (block.feed_forward.experts) sparse.push_back(block.layer);
    types.push_back(Json(block.attention.chunk > 0 ? kChunked : kFull));
  }
  json.set("moe_layers", std::move(sparse));
  json.set("attention_bias", config.qkv_bias);
  write_rotated_layers(config, json);
  json.set("layer_types", std::move(types));
  json.set("attention_chunk_size", all.chunk);
  json.set("use_qk_norm", all.unit_norm);
  json.set("attn_temperature_tuning", all.temperature != 0.0);
  if (all.temperature != 0.0) json.set("attn_scale", all.temperature);
  json.set("floor_scale", static_cast<std::int64_t>(all.temperature_step));
}

}  // namespace

extern const ModelFamily kLlama4;
const ModelFamily kLlama4{
    .architecture = "Llama4ForCausalLM",
    .model_type = "llama4_text",
    .apply = read_llama4,
    .write = write_llama4,
    .members =
        {{.name = "intermediate_size_mlp",
          .changes_shapes = true,
          .help = "Width of the feed-forward layer of dense layers; intermediate_size is that of an expert (Llama 4).",
          .refusal = "mixture-of-experts layers in this family"},
         {.name = "interleave_moe_layer_step",
          .changes_shapes = true,
          .help = "Every n-th layer has experts (Llama 4).",
          .refusal = "mixture-of-experts layers in this family"},
         {.name = "moe_layers",
          .type = ConfigMember::Type::index_list,
          .changes_shapes = true,
          .help = "Indices of layers with experts; unset: by interleave_moe_layer_step (Llama 4).",
          .refusal = "mixture-of-experts layers in this family",
          .neutral = "[[]]"},
         {.name = "no_rope_layers",
          .type = ConfigMember::Type::index_list,
          .help = "One entry a layer: 1 with RoPE, 0 without (Llama 4, SmolLM3); unset or empty: by "
                  "no_rope_layer_interval.",
          .refusal = "layers without positions",
          .neutral = "[[]]"},
         {.name = "no_rope_layer_interval",
          .help = "Every n-th layer has no RoPE (Llama 4, SmolLM3).",
          .refusal = "layers without positions"},
         {.name = "attention_chunk_size",
          .help = "Chunk length of chunked_attention layers: tokens attend within their chunk (Llama 4).",
          .refusal = "attention in chunks"},
         {.name = "use_qk_norm",
          .type = ConfigMember::Type::boolean,
          .help = "L2 norm of queries and keys after RoPE (Llama 4).",
          .refusal = "a norm of queries and keys in this family",
          .neutral = "[false]"},
         {.name = "attn_temperature_tuning",
          .type = ConfigMember::Type::boolean,
          .help = "Layers without RoPE scale queries by position (Llama 4).",
          .refusal = "attention scales by position",
          .neutral = "[false, 0]"},
         {.name = "attn_scale",
          .type = ConfigMember::Type::nonnegative_number,
          .help = "Query scale of attn_temperature_tuning at position p: 1 + attn_scale * log(1 + floor((p + 1) / "
                  "floor_scale)).",
          .refusal = "attention scales by position"},
         {.name = "floor_scale", .help = "See attn_scale (Llama 4).", .refusal = "attention scales by position"}},
    .executes = {"attention_bias", "layer_types", "num_local_experts", "num_experts_per_tok", "router_aux_loss_coef",
                 "output_router_logits"},
    .defaults = {.max_position_embeddings = 131072, .rms_norm_eps = 1e-5, .rope_theta = 5e5},
    .multimodal_architecture = "Llama4ForConditionalGeneration"};

}  // namespace quench::nn
