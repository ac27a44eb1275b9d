// Granite 3 (Hugging Face Transformers, modeling_granite): Llama with factors on embeddings, scores, sublayer outputs
// and logits.

#include "nn/models/decoder_block.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

void read_granite(ConfigReader& in, ModelConfig& config) {
  config.qkv_bias = config.output_bias = in.boolean("attention_bias", false);
  config.mlp_bias = in.boolean("mlp_bias", false);
  const double attention = in.number("attention_multiplier", 1.0, true);
  config.stream.embedding_scale = in.number("embedding_multiplier", 1.0, true);
  const double residual = in.number("residual_multiplier", 1.0, true);
  config.stream.logits_scale = 1.0 / in.number("logits_scaling", 1.0, true);
  config.blocks = decoder_blocks(config);
  for (BlockSpec& block : config.blocks) {
    block.attention.scale = attention;
    block.residual_multiplier = residual;
  }
}

void write_granite(const ModelConfig& config, Json& json) {
  json.set("attention_bias", config.qkv_bias);
  json.set("mlp_bias", config.mlp_bias);
  json.set("attention_multiplier", config.block(0).attention.scale);
  json.set("embedding_multiplier", config.stream.embedding_scale);
  json.set("residual_multiplier", config.block(0).residual_multiplier);
  json.set("logits_scaling", std::stod(fmt::format("{:.12g}", 1.0 / config.stream.logits_scale)));
}

constexpr std::string_view kFactors = "scale factors between the layers";

}  // namespace

extern const ModelFamily kGranite;
const ModelFamily kGranite{.architecture = "GraniteForCausalLM",
                           .model_type = "granite",
                           .apply = read_granite,
                           .write = write_granite,
                           .members = {{.name = "embedding_multiplier",
                                        .type = ConfigMember::Type::positive_number,
                                        .help = "Factor on the rows of the embedding (Granite).",
                                        .refusal = kFactors,
                                        .neutral = "[1]"},
                                       {.name = "attention_multiplier",
                                        .type = ConfigMember::Type::positive_number,
                                        .help = "Factor on attention scores, in place of 1 / sqrt(head_dim) (Granite).",
                                        .refusal = kFactors},
                                       {.name = "residual_multiplier",
                                        .type = ConfigMember::Type::positive_number,
                                        .help = "Factor on each sublayer's output (Granite).",
                                        .refusal = kFactors,
                                        .neutral = "[1]"},
                                       {.name = "logits_scaling",
                                        .type = ConfigMember::Type::positive_number,
                                        .help = "Logits are divided by it (Granite).",
                                        .refusal = kFactors,
                                        .neutral = "[1]"}},
                           .executes = {"attention_bias", "mlp_bias"},
                           .defaults = {.vocab_size = 32000,
                                        .hidden_size = 4096,
                                        .intermediate_size = 11008,
                                        .num_hidden_layers = 32,
                                        .num_attention_heads = 32}};

}  // namespace quench::nn
