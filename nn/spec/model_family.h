#pragma once
// A family of models as data: its entry in the table of families. Entries lie in nn/models, above the modules that
// their blocks are made of; all code below reads them through this header.

#include <span>
#include <string_view>
#include <vector>

#include "nn/spec/config_member.h"
#include "nn/spec/config_reader.h"
#include "nn/spec/model_config.h"

namespace quench::nn {

// Defaults of Transformers' configuration class.
struct ModelDefaults {
  std::int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  std::string_view hidden_act = "silu";  // the family's only one
  // RoPE base of windowed layers in families with rope_parameters by layer type; 0: one RoPE for all layers.
  double local_rope_theta = 0.0;
  // Share of a head that is rotated; 0: the family rotates whole heads.
  double partial_rotary_factor = 0.0;
  // RoPE scaling longrope has the older names su and yarn, and an original length of 4096 by default.
  bool old_longrope = false;
  // 0: config.json must have them; num_key_value_heads: as many as heads; head_dim: hidden_size / heads.
  std::int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;
  bool tie_word_embeddings = false;
};

// Everything that differs between models: no code outside the table and its families' files asks for a family.
struct ModelFamily {
  std::string_view architecture;  // "LlamaForCausalLM"
  std::string_view model_type;    // "llama"
  // Reads what the family has beyond the common members, rejects unsupported options, and makes `blocks` (mostly by
  // decoder_blocks, nn/models/decoder_block.h), and `stream` if it is not the plain one. Values may be faulty: faults
  // are reported after it.
  void (*apply)(ConfigReader& in, ModelConfig& config) = nullptr;
  // Writes the members that apply() reads, from the blocks or from `json`, which has them as they were read; may be
  // null.
  void (*write)(const ModelConfig& config, Json& json) = nullptr;
  // Members of config.json that apply() reads: of this family alone, and known to all families but not executed by all.
  std::vector<ConfigMember> members = {};
  std::vector<std::string_view> executes = {};
  bool mtp = false;  // apply() makes MtpConfig
  ModelDefaults defaults = {};
  // Class of multimodal checkpoints whose text_config is of this family; "": none.
  std::string_view multimodal_architecture = {};

  [[nodiscard]] bool has_member(std::string_view name) const;
};

// For TableEntries.
[[nodiscard]] inline std::vector<std::string_view> entry_names(const ModelFamily& family) {
  return {family.architecture, family.model_type};
}

// The table (nn/models/table.cpp), in documentation order.
[[nodiscard]] std::span<const ModelFamily> model_families();
// nullptr if unknown.
[[nodiscard]] const ModelFamily* find_model_family(std::string_view name);

}  // namespace quench::nn
