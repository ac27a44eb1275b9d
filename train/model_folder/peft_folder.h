#pragma once
// PEFT adapter folders: adapter_config.json, adapter_model.safetensors.

#include <filesystem>
#include <memory>
#include <string>

#include "export/table/format.h"
#include "nn/causal_lm.h"
#include "recipes/lora/adapters.h"
#include "train/model_folder/export_folder.h"
#include "train/model_source/model_source.h"

namespace quench {

// Files of an adapter folder.
inline constexpr std::string_view kAdapterWeightsName = "adapter_model.safetensors";
inline constexpr std::string_view kAdapterBaseName = "adapter_base.json";  // ignored by PEFT

// Unattached, with dtypes and device of `options`. Layers are those in the weights file. Throws not_found, corrupt or
// unsupported naming the file: unsupported features (trained biases, ...), missing A or B, mismatched ranks and shapes,
// unknown tensors; all faults of the weights in one error.
[[nodiscard]] std::unique_ptr<recipes::Adapters> load_adapter(nn::CausalLm& model, const std::filesystem::path& folder,
                                                              const nn::ParameterOptions& options);

// Hash of the base weights in the training dtype (train/setup/adapter_setup.h).
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
  // Gathers sharded adapters; or unset.
  recipes::Adapters::Whole whole{};
};

// Published atomically. Throws as save_model_folder().
void save_adapter_folder(nn::CausalLm& model, const recipes::Adapters& adapters, const ExportTarget& target,
                         const AdapterFolderOptions& options);

}  // namespace quench
