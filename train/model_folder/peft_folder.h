#pragma once
// PEFT adapter folders: adapter_config.json, adapter_model.safetensors.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "export/table/format.h"
#include "nn/decoder/causal_lm.h"
#include "recipes/lora/adapters.h"
#include "train/model_folder/export_folder.h"
#include "train/model_folder/model_card.h"
#include "train/model_folder/peft_config.h"
#include "train/model_folder/token_ids.h"
#include "train/model_source/model_source.h"

namespace quench {

// Files of an adapter folder.
inline constexpr std::string_view kAdapterWeightsName = "adapter_model.safetensors";
inline constexpr std::string_view kAdapterBaseName = "adapter_base.json";  // ignored by PEFT

// Config of a PEFT adapter folder. Throws not_found for another folder and without a weights file, else as
// parse_peft_config().
[[nodiscard]] PeftConfig adapter_config(const std::filesystem::path& folder);

// Unattached, with dtypes and device of `options`. Layers are those in the weights file. Throws not_found, corrupt or
// unsupported naming the file: unsupported features (trained biases, ...), missing A or B, mismatched ranks and shapes,
// unknown tensors; all faults of the weights in one error. An embedding and a head of the folder (of a resized
// vocabulary) replace those of the model, whose vocabulary must have adapter_vocabulary() rows. Low-rank updates of
// embedding and untied head become copies of the whole weights, as of modules_to_save (vocabulary_updates.h).
[[nodiscard]] std::unique_ptr<recipes::Adapters> load_adapter(nn::CausalLm& model, const std::filesystem::path& folder,
                                                              const nn::ParameterOptions& options);

// Rows of the embedding and the head stored with an adapter, whose base may have fewer; nullopt: none. Throws as
// load_adapter().
[[nodiscard]] std::optional<std::int64_t> adapter_vocabulary(const std::filesystem::path& folder);
// Embedding and untied head.
[[nodiscard]] std::vector<nn::Parameter*> vocabulary_parameters(nn::CausalLm& model);

// Hash of the base weights in the training dtype (train/session/adapter_setup.h).
struct AdapterBase {
  std::string hash;  // empty: unknown
  DType dtype = DType::f32;
};
// adapter_base.json; empty for other programs' folders. Throws corrupt.
[[nodiscard]] AdapterBase adapter_base(const std::filesystem::path& folder);

// Contents of a written adapter folder.
struct AdapterFolderOptions {
  DType dtype = DType::f32;  // stored
  std::string base;          // base_model_name_or_path
  AdapterBase trained_over = {};
  // Gathers sharded adapters, and vocabulary_parameters() with `vocabulary`; or unset.
  recipes::Adapters::Whole whole{};
  // The model has rows that its base has not: embedding and head are stored whole, as by PEFT's
  // save_embedding_layers.
  bool vocabulary = false;
  const Tokenizer* tokenizer = nullptr;  // saved along
  TrainingFacts training = {};           // for the model card
  // generation_config.json, for merging, if the end ids differ from those of `base`; unset: none. PEFT ignores it.
  std::optional<TokenIds> generation_ids = {};
};

// Published atomically. Throws as save_model_folder().
void save_adapter_folder(nn::CausalLm& model, const recipes::Adapters& adapters, const ExportTarget& target,
                         const AdapterFolderOptions& options);

}  // namespace quench
