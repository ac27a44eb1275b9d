#pragma once
// Classification of a path that names a model; the single place that inspects folder content.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench {

inline constexpr std::string_view kAdapterConfigName = "adapter_config.json";  // of PEFT

enum class ModelSourceKind : std::uint8_t {
  model_folder,       // config.json or weights: safetensors, or one GGUF file
  gguf_file,          // *.gguf, with the config.json of its folder if present
  adapter_folder,     // adapter_config.json
  checkpoint,         // step-N: manifest.json
  checkpoint_folder,  // step-N folders, directly or in checkpoints/
  run_folder,         // resolved config or environment.json of a run
};
// "model folder", "GGUF file", "PEFT adapter folder", "training checkpoint", "folder of checkpoints", "run folder"
[[nodiscard]] std::string_view to_string(ModelSourceKind kind) noexcept;

// Priority of kinds for a folder that fits several:
//   run_folder         unless its config.json is that of a model (model_type or architectures)
//   model_folder       with weights, or with config.json and no adapter_config.json
//   adapter_folder
//   checkpoint
//   checkpoint_folder
// Safetensors take precedence over a GGUF file in the same folder. Opening reads only file names and config.json.
class ModelSource {
 public:
  // Throws not_found for an absent path and an unrecognized folder, bad_config for an unsupported file and several GGUF
  // files, io for an unreadable path. `role`: noun for the path in messages.
  [[nodiscard]] static ModelSource open(const std::filesystem::path& path, std::string_view role = "model folder");
  // The same; nullopt instead of not_found.
  [[nodiscard]] static std::optional<ModelSource> find(const std::filesystem::path& path);

  [[nodiscard]] ModelSourceKind kind() const noexcept { return kind_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  // Model folder or GGUF file.
  [[nodiscard]] bool is_model() const noexcept;
  // Throws bad_config unless is_model(), naming the kind and the command or path to use instead.
  void require_model() const;
  // config.json, or a stand-alone GGUF file; empty without either, and for other kinds.
  [[nodiscard]] const std::filesystem::path& config_file() const noexcept { return config_file_; }
  // config.json, or its equivalent from GGUF metadata (stored_model_config() of export/table/open_stored_weights.h).
  // Throws as require_model(), not_found without a config_file(), and corrupt.
  [[nodiscard]] Json config() const;
  // Safetensors folder or GGUF file; empty without weights, and for other kinds.
  [[nodiscard]] const std::filesystem::path& weights() const noexcept { return weights_; }
  // True for quantized weights; `config`: config().
  [[nodiscard]] bool is_quantized(const Json& config) const;

  // True for checkpoints: of a run, a folder of them, or a single one.
  [[nodiscard]] bool is_trained() const noexcept;
  // Run folder; empty for other kinds.
  [[nodiscard]] std::filesystem::path run() const;
  // Folder of step-N; empty for kinds other than run and checkpoint folders.
  [[nodiscard]] const std::filesystem::path& checkpoints() const noexcept { return checkpoints_; }
  // The step-N folder to read: the newest valid one. Throws not_found if there is none, with the fault of each and a
  // remedy.
  [[nodiscard]] std::filesystem::path checkpoint() const;

  // Folder with adapter_config.json, also within a model folder; empty: none.
  [[nodiscard]] const std::filesystem::path& adapter() const noexcept { return adapter_; }
  // base_model_name_or_path of the adapter; empty if absent.
  [[nodiscard]] std::string adapter_base() const;

  // Folder or GGUF file with a tokenizer: the model's, the adapter's, or that of the run's model part; empty: none.
  [[nodiscard]] std::filesystem::path tokenizer() const;

 private:
  ModelSource(ModelSourceKind kind, std::filesystem::path path) : kind_(kind), path_(std::move(path)) {}

  static std::optional<ModelSource> look(const std::filesystem::path& folder);

  ModelSourceKind kind_;
  std::filesystem::path path_, config_file_, weights_, checkpoints_, adapter_;
};

}  // namespace quench
