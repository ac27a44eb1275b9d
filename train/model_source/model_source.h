#pragma once
// Kind and parts of a path that names a model: the one place that decides what a file or folder holds.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench {

inline constexpr std::string_view kAdapterConfigName = "adapter_config.json";  // of PEFT

enum class ModelSourceKind : std::uint8_t {
  model_folder,       // config.json or weights: safetensors, or one GGUF file
  gguf_file,          // *.gguf, described by the config.json of its folder where there is one
  adapter_folder,     // adapter_config.json
  checkpoint,         // step-N: manifest.json
  checkpoint_folder,  // step-N folders, its own or those of checkpoints/
  run_folder,         // resolved config or environment.json of a run
};
// "model folder", "GGUF file", "PEFT adapter folder", "training checkpoint", "folder of checkpoints", "run folder"
[[nodiscard]] std::string_view to_string(ModelSourceKind kind) noexcept;

// A folder that fits several kinds is of the first that applies:
//   run_folder         unless its config.json is that of a model (model_type or architectures)
//   model_folder       with weights, or with config.json and no adapter_config.json
//   adapter_folder
//   checkpoint
//   checkpoint_folder
// Safetensors are preferred to a GGUF file of the same folder. Nothing but names and config.json is read to open one.
class ModelSource {
 public:
  // Throws not_found for an absent path and for a folder that holds none of the kinds, bad_config for a file of another
  // kind and for several GGUF files, io for a path that cannot be read. `role` names the path in messages.
  [[nodiscard]] static ModelSource open(const std::filesystem::path& path, std::string_view role = "model folder");
  // The same; absent where open() throws not_found.
  [[nodiscard]] static std::optional<ModelSource> find(const std::filesystem::path& path);

  [[nodiscard]] ModelSourceKind kind() const noexcept { return kind_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  // Model folders and GGUF files, which the formats of export/ read.
  [[nodiscard]] bool is_model() const noexcept;
  // Throws bad_config unless is_model(), naming the kind and the command or path to use instead.
  void require_model() const;
  // config.json, or a GGUF file that stands alone; empty where there is neither, and for other kinds.
  [[nodiscard]] const std::filesystem::path& config_file() const noexcept { return config_file_; }
  // config.json of the model, or its equivalent from GGUF metadata (stored_model_config() of
  // export/table/open_stored_weights.h). Throws as require_model(), not_found without a config_file(), and corrupt.
  [[nodiscard]] Json config() const;
  // Folder of the safetensors files, or the GGUF file; empty where there are no weights, and for other kinds.
  [[nodiscard]] const std::filesystem::path& weights() const noexcept { return weights_; }
  // Whether the weights are quantized; `config` is config().
  [[nodiscard]] bool is_quantized(const Json& config) const;

  // Checkpoints of a run, of a folder of them, or of a single one.
  [[nodiscard]] bool is_trained() const noexcept;
  // The run folder; empty for other kinds.
  [[nodiscard]] std::filesystem::path run() const;
  // Folder of the step-N folders; empty for other kinds than runs and folders of checkpoints.
  [[nodiscard]] const std::filesystem::path& checkpoints() const noexcept { return checkpoints_; }
  // The step-N folder to read: the newest valid one where there are several. Throws not_found where there is none,
  // naming the fault of each and what to do.
  [[nodiscard]] std::filesystem::path checkpoint() const;

  // Folder with adapter_config.json, which a model folder may hold too; empty: none.
  [[nodiscard]] const std::filesystem::path& adapter() const noexcept { return adapter_; }
  // base_model_name_or_path of that; empty where it is not named.
  [[nodiscard]] std::string adapter_base() const;

  // Folder or GGUF file that holds a tokenizer: the model's, the adapter's, or that of the run's model part; empty:
  // none.
  [[nodiscard]] std::filesystem::path tokenizer() const;

 private:
  ModelSource(ModelSourceKind kind, std::filesystem::path path) : kind_(kind), path_(std::move(path)) {}

  static std::optional<ModelSource> look(const std::filesystem::path& folder);

  ModelSourceKind kind_;
  std::filesystem::path path_, config_file_, weights_, checkpoints_, adapter_;
};

}  // namespace quench
