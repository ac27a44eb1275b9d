#pragma once
// Functions shared by verbs: loading a model and its tokenizer, threads, JSON output.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "core/json/json.h"
#include "data/tokenizer/tokenizer.h"
#include "nn/causal_lm.h"
#include "recipes/lora/adapters.h"
#include "train/model_folder/token_ids.h"
#include "train/setup/learned_scales.h"
#include "train/setup/trained_scheme.h"

namespace quench {

struct LoadedModel {
  nn::ModelConfig config;
  std::unique_ptr<nn::CausalLm> model;
  std::filesystem::path small_files;            // folder with tokenizer and other small files; may be empty
  std::string tokenizer;                        // from the config of an older run; may be empty
  std::string fingerprint;                      // of the tokenizer in training, from a checkpoint; may be empty
  Json named_ids = Json::object();              // token ids in such a config
  std::string missing;                          // reason for a missing tokenizer; may be empty
  std::shared_ptr<recipes::Adapters> adapters;  // applied to the model; null: none
  std::string base_hash;                        // hash of the adapters' base weights, in base_dtype; empty: unknown
  DType base_dtype = DType::f32;
  std::string base;        // model.path of the adapters' run; may be empty
  bool quantized = false;  // quantized weights in the folder
  LearnedScales scales;    // of a QAT checkpoint with trained scales
  TrainedScheme trained;   // of a QAT checkpoint
  // Reads a parameter in its stored dtype, for a model with weights on disk (open_model).
  std::function<Tensor(const nn::Parameter&)> whole;
};

// Callback with the model after construction, before its weights are read. The returned work, if any, runs on its own
// thread, concurrently with reading: weights are undefined until then.
using LoadingWork = std::function<std::function<void()>(const LoadedModel&)>;

// Loads a Hugging Face folder, a checkpoint (step-N), or a run folder's newest checkpoint (not_found with a hint if
// none) onto `device` ("auto", "cpu", ...); adapter checkpoints are applied to their base. dtype "auto": the stored one
// (f16 becomes f32 on the CPU), else "f32" or "bf16". Without `trainable` no gradients are allocated.
[[nodiscard]] LoadedModel load_model(const std::filesystem::path& folder, const std::string& device,
                                     const std::string& dtype, bool trainable = false, const LoadingWork& work = {});

// load_model on the CPU for verbs that write one tensor at a time: the parameters of a full-model checkpoint are on the
// meta device and read by `whole`.
[[nodiscard]] LoadedModel open_model(const std::filesystem::path& folder, const std::string& dtype);

// Applies the PEFT adapter in `folder`, replacing a previous one; no-op for an empty name. `trainable`: only adapter
// parameters have gradients.
void use_adapter(LoadedModel& loaded, const std::filesystem::path& folder, bool trainable = false);
// Merges the adapters into the weights, if any.
void merge_adapters(LoadedModel& loaded);

// Tokenizer `name` if nonempty, else the run's, else that of the model's folder; null if none. Throws bad_config if a
// checkpoint's tokenizer differs from the one used in training.
[[nodiscard]] std::unique_ptr<Tokenizer> find_model_tokenizer(const LoadedModel& loaded, const std::string& name);
// Throws bad_config if the tokenizer has more tokens than the model.
void check_model_tokenizer(const LoadedModel& loaded, const Tokenizer& tokenizer);
// find_model_tokenizer() and check_model_tokenizer(); throws not_found without a tokenizer.
[[nodiscard]] std::unique_ptr<Tokenizer> require_model_tokenizer(const LoadedModel& loaded, const std::string& name);

// Token ids of the model with a tokenizer (null: none), possibly not its own; warns of a mismatch.
[[nodiscard]] TokenIdChoice model_token_ids(const LoadedModel& loaded, const Tokenizer* tokenizer);

// Number of CPU threads; 0: default (all available). Throws bad_config for implausible numbers.
void set_threads(int threads);

// Prints one JSON document and a line break to stdout.
void print_json(const Json& json);

}  // namespace quench
