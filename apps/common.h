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
  std::filesystem::path small_files;  // folder with tokenizer and other small files; may be empty
  std::string tokenizer;              // what the run's config names; may be empty
};

// Loads a Hugging Face folder, a training checkpoint (step-N), or the newest checkpoint of a run folder onto a device
// ("auto", "cpu", ...). dtype "auto" keeps the stored one (f16 becomes f32 on the CPU), else "f32" or "bf16". Without
// `trainable` no gradients are kept.
[[nodiscard]] LoadedModel load_model(const std::filesystem::path& folder, const std::string& device,
                                     const std::string& dtype, bool trainable = false);

// The named tokenizer if `name` is not empty, else the run's, else the one beside the weights; null if there is none.
[[nodiscard]] std::unique_ptr<Tokenizer> find_model_tokenizer(const LoadedModel& loaded, const std::string& name);
// The same; throws not_found if there is none, and bad_config if it has more tokens than the model.
[[nodiscard]] std::unique_ptr<Tokenizer> require_model_tokenizer(const LoadedModel& loaded, const std::string& name);

// Uses this many CPU threads; 0 keeps the default (all the process may use).
void set_threads(int threads);

// One JSON document and a line break on standard output.
void print_json(const Json& json);

}  // namespace quench
