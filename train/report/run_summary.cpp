#include "train/report/run_summary.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>

#include "core/json/json_member.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/check/load.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/config/adapter_words.h"
#include "train/metrics/run_files.h"
#include "train/model_folder/model_folder.h"
#include "train/model_folder/token_ids.h"
#include "train/model_source/model_source.h"
#include "train/model_source/run_layout.h"
#include "train/report/run_data.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// Process of the folder's lock; false if unknown (another host).
bool is_running(const fs::path& folder) {
  try {
    const Json holder = Json::parse_file(folder / ".lock");
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    const auto process = static_cast<pid_t>(holder.at("process").as_int());
    return holder.at("host").as_string() == host.data() && process > 0 && (::kill(process, 0) == 0 || errno == EPERM);
  } catch (const Error&) {
    return false;  // released: empty file
  }
}

void add_model(Json& json, const fs::path& folder, const Json& config, std::vector<std::string>& notes) {
  const fs::path kept = folder / run_files::kModelFolder;
  try {
    const nn::ModelConfig model = read_model_config(kept);
    json.set("model", model.architecture);
    json.set("parameters", model.parameter_count());
  } catch (const Error& error) {
    notes.emplace_back(error.what());
  }
  if (const Json* plugins = find_member(config, {"run", "plugins"});
      plugins != nullptr && plugins->is_array() && !plugins->as_array().empty())
    json.set("plugins", *plugins);
  for (const char* key : {"path", "preset"})
    if (const std::string from = find_text(config, {"model", key}); !from.empty()) json.set("model_from", from);
  if (const std::string recipe = find_text(config, {"recipe", "name"}); !recipe.empty()) json.set("recipe", recipe);
  if (const Json* rank = find_member(config, {"lora", "rank"}); rank != nullptr) {
    const Json* dora = find_member(config, {"lora", "dora"});
    json.set("adapters",
             adapter_words(find_text(config, {"lora", "base"}), rank->dump(), dora != nullptr && *dora == Json(true)));
  }
  if (const std::string dtype = find_text(config, {"training", "dtype"}); !dtype.empty()) json.set("dtype", dtype);
  if (!holds_tokenizer(kept)) return;
  try {
    json.set("tokenizer", kept.string());
    json.set("tokenizer_tokens", load_tokenizer(kept)->vocab_size());
  } catch (const Error& error) {
    notes.emplace_back(error.what());
  }
}

// Readable.
bool holds_export(const fs::path& folder) {
  if (folder.empty()) return false;
  try {
    const auto source = ModelSource::find(folder);
    return source && (source->is_model() || !source->adapter().empty());
  } catch (const Error&) {
    return false;
  }
}

Json list_of_checkpoints(const std::vector<CheckpointInfo>& checkpoints) {
  Json list = Json::array();
  for (const CheckpointInfo& info : checkpoints) {
    Json item = Json::object();
    item.set("step", info.step);
    item.set("path", info.path.string());
    item.set("bytes", bytes_in(info.path));
    item.set("valid", info.valid);
    if (!info.fault.empty()) item.set("fault", info.fault);
    if (info.pinned) item.set("pinned", true);
    if (info.superseded) item.set("superseded", true);
    list.push_back(std::move(item));
  }
  return list;
}

// By the current config, possibly more than logged; epochs are converted only in the log.
std::int64_t planned_steps(const RunData& run) {
  const Json* steps = find_member(run.config, {"training", "steps"});
  const bool known =
      steps != nullptr && steps->is_integer() && find_member(run.config, {"training", "epochs"}) == nullptr;
  return known ? steps->as_int() : run.total_steps;
}

std::string state_of(const fs::path& folder, std::int64_t step, std::int64_t total) {
  if (is_running(folder)) return "running";
  if (total > 0 && step >= total) return "finished";
  return step > 0 ? "interrupted" : "not started";
}

}  // namespace

Json run_summary(const fs::path& folder) {
  const RunData run = load_run(folder);
  const std::vector<CheckpointInfo> checkpoints = list_checkpoints(checkpoint_folder_of(folder)).checkpoints;
  std::optional<std::int64_t> saved;
  for (const CheckpointInfo& info : checkpoints)
    if (info.valid && !info.superseded && !saved) saved = info.step;
  const std::int64_t total = planned_steps(run);
  const std::int64_t step = std::max(run.last_step, saved.value_or(0));
  std::vector<std::string> notes = run.notes;

  Json json = Json::object();
  json.set("kind", "run");
  json.set("name", run.name);
  json.set("folder", fs::absolute(folder).lexically_normal().string());
  json.set("state", state_of(folder, step, total));
  json.set("step", step);
  if (total > 0) json.set("total_steps", total);
  if (saved) json.set("last_saved_step", *saved);
  const auto last = [&](const char* key, const char* name) {
    const Curve& curve = run.curve(key);
    if (!curve.empty()) json.set(name, curve.back().y);
  };
  if (const Curve& tokens = run.curve("tokens_seen"); !tokens.empty() && std::isfinite(tokens.back().y))
    json.set("tokens_seen", static_cast<std::int64_t>(tokens.back().y));
  last("loss", "last_loss");
  if (const Curve validation = run.validation_loss(); !validation.empty())
    json.set("validation",
             Json::Object{{"step", static_cast<std::int64_t>(validation.back().x)}, {"loss", validation.back().y}});
  if (const EvaluationMetrics* exported = run.exported())
    json.set("export_validation", Json::Object{{"method", exported->name.substr(kExportEvaluation.size())},
                                               {"step", exported->step},
                                               {"loss", exported->values.front().second}});
  add_model(json, folder, run.config, notes);
  if (run.first_time > 0) json.set("started", format_utc(run.first_time));
  if (run.last_time > 0) json.set("last_record", format_utc(run.last_time));
  json.set("bytes", bytes_in(folder));
  Json list = list_of_checkpoints(checkpoints);
  std::int64_t checkpoint_bytes = 0;
  for (const Json& item : list.as_array()) checkpoint_bytes += item.at("bytes").as_int();
  json.set("checkpoint_bytes", checkpoint_bytes);
  Json exports = Json::array();
  std::error_code ignored;
  for (const fs::path& exported : {folder / "export", fs::path(find_text(run.config, {"export", "folder"}))})
    if (holds_export(exported) &&
        (exports.as_array().empty() || !fs::equivalent(exported, exports.as_array().front().as_string(), ignored)))
      exports.push_back(exported.string());
  json.set("exports", std::move(exports));
  if (!notes.empty()) {
    Json array = Json::array();
    for (const std::string& note : notes) array.push_back(note);
    json.set("notes", std::move(array));
  }
  json.set("checkpoints", std::move(list));
  return json;
}

}  // namespace quench
