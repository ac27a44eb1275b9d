#pragma once
// Adapter folders of Hugging Face PEFT: adapter_config.json and adapter_model.safetensors.

#include <filesystem>
#include <memory>
#include <string>

#include "export/table/format.h"
#include "nn/causal_lm.h"
#include "recipes/lora/adapters.h"
#include "train/model_folder/export_folder.h"
#include "train/model_source/model_source.h"

namespace quench {

inline constexpr std::string_view kAdapterWeightsName = "adapter_model.safetensors";
inline constexpr std::string_view kAdapterBaseName = "adapter_base.json";  // PEFT passes it over

// Reads a LoRA adapter for the model, in the dtypes and on the device of `options`; it is not attached. The layers are
// those that the weights name. Throws not_found, corrupt or unsupported naming the file: what PEFT can and this program
// cannot (trained biases, ...), a layer without its A or B, ranks and shapes that do not fit config or model,
// tensors of other kinds; all faults of the weights in one error.
[[nodiscard]] std::unique_ptr<recipes::Adapters> load_adapter(nn::CausalLm& model, const std::filesystem::path& folder,
                                                              const nn::ParameterOptions& options);

// The model that adapters were trained over: a hash of its weights in the dtype of training
// (train/setup/adapter_setup.h).
struct AdapterBase {
  std::string hash;  // empty: not known
  DType dtype = DType::f32;
};
// What a folder of this program says of it, in adapter_base.json; of others' folders nothing. Throws corrupt.
[[nodiscard]] AdapterBase adapter_base(const std::filesystem::path& folder);

struct AdapterFolderOptions {
  DType dtype = DType::f32;  // of the stored weights
  std::string base;          // base_model_name_or_path
  AdapterBase trained_over = {};
  // Brings the parts of adapters that other processes hold; absent: there are none.
  recipes::Adapters::Whole whole{};
};

// Writes a folder that PEFT loads; it appears under its name only when it is complete. Throws as save_model_folder().
void save_adapter_folder(nn::CausalLm& model, const recipes::Adapters& adapters, const ExportTarget& target,
                         const AdapterFolderOptions& options);

}  // namespace quench
