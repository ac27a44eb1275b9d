#pragma once
// Classification of a path that names a model; the only inspection of folder content.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench {

inline constexpr std::string_view kAdapterConfigName = "adapter_config.json";  // PEFT's

// By the content of the path.
enum class ModelSourceKind : std::uint8_t {
  model_folder,       // config.json or weights: safetensors, or one GGUF file
  gguf_file,          // *.gguf, with its folder's config.json if present
  adapter_folder,     // adapter_config.json
  checkpoint,         // step-N: manifest.json
  checkpoint_folder,  // step-N folders, directly or in checkpoints/
  run_folder,         // resolved config or environment.json
};
// "model folder", "GGUF file", "PEFT adapter folder", "training checkpoint", "folder of checkpoints", "run folder"
[[nodiscard]] std::string_view to_string(ModelSourceKind kind) noexcept;

// Priority for a folder of several kinds:
//   run_folder         unless its config.json is a model's (model_type or architectures)
//   model_folder       with weights, or with config.json and no adapter_config.json
//   adapter_folder
//   checkpoint
//   checkpoint_folder
// Safetensors take precedence over GGUF. Opening reads only file names and config.json.
class ModelSource {
 public:
  // hf:ORG/NAME: its folder in the cache of the hub. Throws not_found for an absent path or an unrecognized folder,
  // bad_config for an unsupported file or several GGUF files, io for an unreadable path. `role`: for messages.
  [[nodiscard]] static ModelSource open(const std::filesystem::path& path, std::string_view role = "model folder");
  // nullopt instead of not_found.
  [[nodiscard]] static std::optional<ModelSource> find(const std::filesystem::path& path);

  [[nodiscard]] ModelSourceKind kind() const noexcept { return kind_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  // Model folder or GGUF file.
  [[nodiscard]] bool is_model() const noexcept;
  // Throws bad_config naming the kind and the command or path to use instead.
  void require_model() const;
  // config.json, or a stand-alone GGUF file; else empty.
  [[nodiscard]] const std::filesystem::path& config_file() const noexcept { return config_file_; }
  // config.json, or its equivalent of GGUF metadata (export/table/open_stored_weights.h). Throws as require_model(),
  // not_found without a config_file(), corrupt.
  [[nodiscard]] Json config() const;
  // Safetensors folder or GGUF file; else empty.
  [[nodiscard]] const std::filesystem::path& weights() const noexcept { return weights_; }
  // `config`: config().
  [[nodiscard]] bool is_quantized(const Json& config) const;

  // Run, checkpoint folder or checkpoint.
  [[nodiscard]] bool is_trained() const noexcept;
  // Empty for other kinds.
  [[nodiscard]] std::filesystem::path run() const;
  // Folder of step-N; empty unless a run or checkpoint folder.
  [[nodiscard]] const std::filesystem::path& checkpoints() const noexcept { return checkpoints_; }
  // Newest valid step-N. Throws not_found with the fault of each and a remedy.
  [[nodiscard]] std::filesystem::path checkpoint() const;

  // With adapter_config.json, also within a model folder; or empty.
  [[nodiscard]] const std::filesystem::path& adapter() const noexcept { return adapter_; }
  // base_model_name_or_path, or empty.
  [[nodiscard]] std::string adapter_base() const;

  // Place of the tokenizer of the model, the adapter, or the run's model part: folder or GGUF file; or empty.
  [[nodiscard]] std::filesystem::path tokenizer() const;

 private:
  ModelSource(ModelSourceKind kind, std::filesystem::path path) : kind_(kind), path_(std::move(path)) {}

  static std::optional<ModelSource> look(const std::filesystem::path& folder);

  ModelSourceKind kind_;
  std::filesystem::path path_, config_file_, weights_, checkpoints_, adapter_;
};

}  // namespace quench
