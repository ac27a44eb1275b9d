#pragma once
// The small files of a model folder besides config and weights.

#include <filesystem>

#include "nn/model_config.h"

namespace quench {

// Copies the tokenizer, chat template and licence files that `from` has into `to`, and generation_config.json (made
// from the config's token ids where `from` has none). `from` may be empty.
void carry_files(const nn::ModelConfig& config, const std::filesystem::path& from, const std::filesystem::path& to);

// Puts the complete folder `fresh` in the place of `target`. At every moment either the old or the new one stands
// there or, for an instant, the old one under a temporary name beside it.
void replace_folder(const std::filesystem::path& fresh, const std::filesystem::path& target);

}  // namespace quench
