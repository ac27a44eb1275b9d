#pragma once
// What several verbs share: loading a model and its tokenizer, threads, JSON results.

#include <filesystem>
#include <memory>
#include <string>

#include "core/json.h"
#include "data/tokenizer/tokenizer.h"
#include "nn/causal_lm.h"

namespace quench {

struct LoadedModel {
  nn::ModelConfig config;
  std::unique_ptr<nn::CausalLm> model;
};

// Loads a Hugging Face folder onto a device ("auto", "cpu", ...). dtype "auto" keeps the stored one (f16 becomes f32
// on the CPU), else "f32" or "bf16". Without `trainable` no gradients are kept.
[[nodiscard]] LoadedModel load_model(const std::filesystem::path& folder, const std::string& device,
                                     const std::string& dtype, bool trainable = false);

// --tokenizer if given, else the one in the model folder.
[[nodiscard]] std::unique_ptr<Tokenizer> load_model_tokenizer(const std::filesystem::path& model,
                                                              const std::string& tokenizer);

// Uses this many CPU threads; 0 keeps the default (all the process may use).
void set_threads(int threads);

// One JSON document and a line break on standard output.
void print_json(const Json& json);

}  // namespace quench
