#pragma once
// PEFT adapter folders that share one model, chosen by name (recipes/lora/adapter_bank.h).

#include <filesystem>
#include <span>
#include <string>

#include "nn/decoder/causal_lm.h"

namespace quench {

struct NamedAdapter {
  std::string name;
  std::filesystem::path folder;
};

// Throws the errors of attach_named_adapters() that config and weights file show without the model.
void check_named_adapters(std::span<const NamedAdapter> adapters);

// Wraps the kernels of the model's layers; adapters are numbered in their order. Throws as load_adapter() and
// attach_adapter_bank(), and unsupported, naming adapter, file and key, for updates that are not of linear layers
// alone: DoRA, modules_to_save, trainable_token_indices, adapters or weights of the embedding or the head. The model is
// unchanged then.
void attach_named_adapters(nn::CausalLm& model, std::span<const NamedAdapter> adapters);

}  // namespace quench
