#include "train/model_source/model_source.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/json/json_member.h"
#include "core/system/check.h"
#include "core/system/missing_path.h"
#include "data/hub/cache.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "export/formats/gguf/reader.h"
#include "export/table/open_stored_weights.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/metrics/run_files.h"
#include "train/model_source/hub_hint.h"
#include "train/model_source/run_layout.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "config.json";
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// False for an unreadable one, which the reader reports.
bool describes_model(const fs::path& config) {
  if (!is_file(config)) return false;
  try {
    const Json json = Json::parse_file(config, {.max_bytes = kMaxConfigBytes});
    return json.is_object() && (json.find("model_type") != nullptr || json.find("architectures") != nullptr);
  } catch (const Error&) {
    return false;
  }
}

bool is_step(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  return parse_step_name(name).has_value() || parse_replaced_name(name).has_value();
}

bool holds_steps(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (is_step(*entry)) return true;
  return false;
}

// "is empty", "holds a.txt, b.txt and 3 more"
std::string contents_of(const fs::path& folder) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (names.empty()) return "is empty";
  std::ranges::sort(names);
  const std::size_t more = names.size() - std::min(names.size(), kShown);
  names.resize(names.size() - more);
  return fmt::format("holds {}{}", fmt::join(names, ", "), more == 0 ? "" : fmt::format(" and {} more", more));
}

// Throws open()'s errors unless a listable folder or a GGUF file.
void require_readable(const fs::path& path, std::string_view role) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, !path.empty(), "no {} is named", role);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    const std::string hub = hub_hint(path.string());
    QUENCH_FAIL(ErrorCode::not_found, "{} {} does not exist{}", role, path.string(),
                hub.empty()                               ? missing_path_text(path)
                : path.string().starts_with(hub::kScheme) ? hub
                                                          : working_directory_text(path) + hub);
  }
  QUENCH_CHECK_AS(ErrorCode::io, !error, "{} {} cannot be read: {}", role, path.string(), error.message());
  if (is_gguf_path(path)) return;
  QUENCH_CHECK_AS(ErrorCode::bad_config, !fs::is_regular_file(status),
                  "{} is a file; name the folder that holds it, or a GGUF file (*.gguf)", path.string());
  QUENCH_CHECK_AS(ErrorCode::bad_config, fs::is_directory(status), "{} is neither a folder nor a regular file",
                  path.string());
  const fs::directory_iterator entries(path, error);
  QUENCH_CHECK_AS(ErrorCode::io, !error, "{} {} cannot be read: {}", role, path.string(), error.message());
}

}  // namespace

std::string_view to_string(ModelSourceKind kind) noexcept {
  constexpr std::array<std::string_view, 6> kNames = {
      "model folder", "GGUF file", "PEFT adapter folder", "training checkpoint", "folder of checkpoints", "run folder"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<ModelSource> ModelSource::look(const fs::path& folder) {
  const fs::path weights = stored_weights_path(folder);  // throws for several GGUF files
  const fs::path adapter = is_file(folder / kAdapterConfigName) ? folder : fs::path();
  if (is_run_folder(folder) && !describes_model(folder / kConfigName)) {
    ModelSource source(ModelSourceKind::run_folder, folder);
    source.checkpoints_ = checkpoint_folder_of(folder);
    return source;
  }
  if (!weights.empty() || (adapter.empty() && fs::exists(folder / kConfigName))) {
    ModelSource source(ModelSourceKind::model_folder, folder);
    source.weights_ = weights;
    source.config_file_ = stored_config_file(folder);
    source.adapter_ = adapter;
    return source;
  }
  if (!adapter.empty()) {
    ModelSource source(ModelSourceKind::adapter_folder, folder);
    source.adapter_ = adapter;
    return source;
  }
  if (fs::exists(folder / Manifest::kFileName)) return ModelSource(ModelSourceKind::checkpoint, folder);
  for (const fs::path& checkpoints : {folder / run_files::kCheckpointFolder, folder}) {
    if (!holds_steps(checkpoints)) continue;
    ModelSource source(ModelSourceKind::checkpoint_folder, folder);
    source.checkpoints_ = checkpoints;
    return source;
  }
  return std::nullopt;
}

ModelSource ModelSource::open(const fs::path& named, std::string_view role) {
  const fs::path path = hub::local_path(named.string());
  require_readable(path, role);
  if (is_gguf_path(path)) {
    ModelSource source(ModelSourceKind::gguf_file, path);
    source.weights_ = path;
    source.config_file_ = stored_config_file(path);
    return source;
  }
  if (std::optional<ModelSource> source = look(path)) return *std::move(source);
  QUENCH_FAIL(ErrorCode::not_found,
              "{} {} has no config.json, weights, adapter_config.json or checkpoints; it {}. Name a Hugging Face model "
              "folder, a GGUF file, a PEFT adapter, or a run or checkpoint of `quench train`",
              role, path.string(), contents_of(path));
}

std::optional<ModelSource> ModelSource::find(const fs::path& path) {
  try {
    return open(path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    return std::nullopt;
  }
}

bool ModelSource::is_model() const noexcept {
  return kind_ == ModelSourceKind::model_folder || kind_ == ModelSourceKind::gguf_file;
}

void ModelSource::require_model() const {
  if (is_model()) return;
  std::string advice;
  if (kind_ == ModelSourceKind::adapter_folder) {
    const std::string base = adapter_base();
    advice = fmt::format(
        "name its base model{}, and the adapter with --adapter where the command has that option, or "
        "merge the two with `quench merge-lora`",
        base.empty() ? "" : " (" + base + ")");
  } else {
    advice = "write a model folder with `quench export` and name that";
    if (const fs::path exported = path_ / "export"; is_file(exported / kConfigName))
      advice = fmt::format("name the model that it exported, {}", exported.string());
  }
  QUENCH_FAIL(ErrorCode::bad_config, "{} is a {}, no model folder: {}", path_.string(), to_string(kind_), advice);
}

Json ModelSource::config() const {
  require_model();
  QUENCH_CHECK_AS(ErrorCode::not_found, !config_file_.empty(),
                  "{} has no config.json; is it a Hugging Face model folder?", path_.string());
  Json config = *stored_model_config(path_);
  QUENCH_CHECK_AS(ErrorCode::corrupt, config.is_object(), "{}: expected a JSON object, got {}", config_file_.string(),
                  config.type_name());
  return config;
}

bool ModelSource::is_quantized(const Json& config) const {
  return is_model() && quench::is_quantized(path_, config);
}

bool ModelSource::is_trained() const noexcept {
  return kind_ == ModelSourceKind::checkpoint || kind_ == ModelSourceKind::checkpoint_folder ||
         kind_ == ModelSourceKind::run_folder;
}

fs::path ModelSource::run() const {
  return kind_ == ModelSourceKind::run_folder ? path_ : fs::path();
}

fs::path ModelSource::checkpoint() const {
  if (kind_ == ModelSourceKind::checkpoint) return path_;
  QUENCH_CHECK_AS(ErrorCode::bad_config, is_trained(), "{} is a {}, which holds no checkpoints", path_.string(),
                  to_string(kind_));
  for (const fs::path& folder : {checkpoints_, path_})
    if (const auto latest = latest_valid(folder)) return latest->path;
  QUENCH_FAIL(ErrorCode::not_found, "{}", no_checkpoint_message(path_, checkpoints_));
}

std::string ModelSource::adapter_base() const {
  if (adapter_.empty()) return {};
  return find_text(Json::parse_file(adapter_ / kAdapterConfigName, {.max_bytes = kMaxConfigBytes}),
                   {"base_model_name_or_path"});
}

fs::path ModelSource::tokenizer() const {
  for (const fs::path& candidate : {path_, run().empty() ? fs::path() : run() / run_files::kModelFolder})
    if (!candidate.empty() && holds_tokenizer(candidate)) return candidate;
  return {};
}

}  // namespace quench
