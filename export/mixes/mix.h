#pragma once
// Mixes: the GGUF type of each tensor of a file, by the rules of llama.cpp's quantizer (llama-quant.cpp). The table
// (mix_table.cpp) has one entry for each; tensor_types.h applies them.

#include <cstdint>
#include <span>
#include <string_view>

namespace quench {

// A tensor's part in the model, by its GGUF name.
enum class TensorRole : std::uint8_t {
  head,   // output.weight, or the embedding table that is the head too
  table,  // token_embd.weight of a model with a head
  query,
  key,
  value,  // also fused query, key and value
  attention_output,
  gate,  // gate, up and down: of experts and shared experts too
  up,
  down,
  other,
};

// Conditions of rules: bits of a set. Layers: of a tensor's own kind, counted from 0.
enum MixCondition : std::uint32_t {
  kAlways = 0,
  kFirst16th = 1u << 0,     // the first sixteenth of the layers
  kFirst8th = 1u << 1,      // the first eighth
  kMiddle = 1u << 2,        // neither the first nor the last eighth
  kMoreBits = 1u << 3,      // the first and the last eighth, and every third layer between
  kFirstTwo = 1u << 4,      // layers 0 and 1
  kFirstFour = 1u << 5,     // layers 0 to 3
  kGrouped4 = 1u << 6,      // four or more query heads for each key head
  kFourExperts = 1u << 7,   // four or more experts
  kEightExperts = 1u << 8,  // exactly eight experts
  kMatrix = 1u << 9,        // quantized with an importance matrix
  kNoMatrix = 1u << 10,
};

// The first rule of a mix whose role and conditions (all of them) fit decides; else the main type.
struct MixRule {
  TensorRole role;
  std::uint32_t conditions;
  std::string_view type;  // ggml's name
};

struct GgufMix {
  std::string_view name;    // scheme name
  std::string_view title;   // llama.cpp's
  std::uint32_t file_type;  // general.file_type (enum llama_ftype)
  std::string_view main;    // type of most tensors
  std::string_view head;    // type of TensorRole::head; Q8_0 where blocks of `main` do not divide its width
  std::string_view table;   // type of TensorRole::table; empty: main
  std::span<const MixRule> rules = {};
  // Llama and Qwen2 of 80 layers: values in Q3_K and Q4_K become Q5_K. Models of eight experts: values and keys Q8_0.
  bool exceptions = true;
  // Rules of `down` count its tensors also in models of experts; else by layer number there.
  bool counts_down = false;
  // Q2_K needs an importance matrix too.
  bool needs_matrix = false;
};

// In documentation order.
[[nodiscard]] std::span<const GgufMix> gguf_mixes();
// Null: unknown.
[[nodiscard]] const GgufMix* find_gguf_mix(std::string_view name);

}  // namespace quench
