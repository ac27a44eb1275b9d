#pragma once
// What several verbs share: loading a model and its tokenizer, threads, JSON results.

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
  std::string tokenizer;                        // what the config of an older run names; may be empty
  std::string fingerprint;                      // of the tokenizer that a checkpoint was trained with; may be empty
  Json named_ids = Json::object();              // token ids that such a config names
  std::string missing;                          // why there may be no tokenizer; may be empty
  std::shared_ptr<recipes::Adapters> adapters;  // over the model's weights; null: none
  std::string base_hash;  // of the weights that they were trained over, in base_dtype; empty: not known
  DType base_dtype = DType::f32;
  std::string base;        // model.path of the run that trained them; may be empty
  bool quantized = false;  // the folder holds codes
  LearnedScales scales;    // of a checkpoint whose run trained them
  TrainedScheme trained;   // of a checkpoint of a QAT run
  // Of a model whose weights stay in their checkpoint (open_model): reads a parameter, in the type that is stored.
  std::function<Tensor(const nn::Parameter&)> whole;
};

// Called when the layers of the model that is being loaded exist, with everything but their weights known. The work
// that it returns, if any, runs in parallel with the reading of the weights, on its own thread; the weights hold
// anything then.
using BesideLoading = std::function<std::function<void()>(const LoadedModel&)>;

// Loads a Hugging Face folder, a training checkpoint (step-N), or the newest checkpoint of a run folder onto a device
// (a run folder without one is not_found, saying what to do), over its base where a checkpoint holds adapters alone;
// ("auto", "cpu", ...). dtype "auto" keeps the stored one (f16 becomes f32 on the CPU), else "f32" or "bf16". Without
// `trainable` no gradients are kept.
[[nodiscard]] LoadedModel load_model(const std::filesystem::path& folder, const std::string& device,
                                     const std::string& dtype, bool trainable = false,
                                     const BesideLoading& beside = {});

// The same on the CPU, for a verb that writes one tensor after the other: of a checkpoint of a whole model the
// parameters are on the device meta, and `whole` reads them, so that no two are in memory. Else as load_model.
[[nodiscard]] LoadedModel open_model(const std::filesystem::path& folder, const std::string& dtype);

// Puts the PEFT adapter in `folder` over the model, in place of the one before; an empty name changes nothing.
// With `trainable` its parameters have gradients and nothing else has.
void use_adapter(LoadedModel& loaded, const std::filesystem::path& folder, bool trainable = false);
// The model with its adapters' updates added to its weights, if it has any.
void merge_adapters(LoadedModel& loaded);

// The named tokenizer if `name` is not empty, else the run's, else the one next to the weights; null if there is none.
// Throws bad_config if the one next to a checkpoint is not the one that it was trained with.
[[nodiscard]] std::unique_ptr<Tokenizer> find_model_tokenizer(const LoadedModel& loaded, const std::string& name);
// Throws bad_config if the tokenizer has more tokens than the model.
void check_model_tokenizer(const LoadedModel& loaded, const Tokenizer& tokenizer);
// Both; throws not_found if there is no tokenizer.
[[nodiscard]] std::unique_ptr<Tokenizer> require_model_tokenizer(const LoadedModel& loaded, const std::string& name);

// The model's token ids with a tokenizer (null: none), which may be another than its own; logs a warning where the two
// disagree.
[[nodiscard]] TokenIdChoice model_token_ids(const LoadedModel& loaded, const Tokenizer* tokenizer);

// Uses this many CPU threads; 0 keeps the default (all the process may use). Throws bad_config for numbers that no
// machine has.
void set_threads(int threads);

// One JSON document and a line break on standard output.
void print_json(const Json& json);

}  // namespace quench
