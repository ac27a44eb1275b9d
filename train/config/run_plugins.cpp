#include "train/config/run_plugins.h"

#include <algorithm>

#include "core/json/json_member.h"
#include "core/system/check.h"
#include "core/system/log.h"
#include "core/system/plugin.h"

namespace quench {
namespace {

constexpr std::string_view kKey = "plugins";  // key in CheckpointState::extra

const Json* plugin_list(const Json& document) {
  const Json* list = find_member(document, {"run", "plugins"});
  return list != nullptr && list->is_array() ? list : nullptr;
}

std::string remedy(const std::string& path) {
  return fmt::format("load it with quench --plugin {} ..., or name it in run.plugins", path);
}

}  // namespace

void load_run_plugins(const Json& document) {
  const Json* list = plugin_list(document);
  if (list == nullptr) return;
  for (const Json& entry : list->as_array())
    if (entry.is_string()) (void)load_plugin(entry.as_string());
}

std::vector<std::string> unloaded_plugins(const Json& document) {
  std::vector<std::string> paths;
  const Json* list = plugin_list(document);
  if (list == nullptr) return paths;
  for (const Json& entry : list->as_array()) {
    std::error_code absent;
    if (!entry.is_string()) continue;
    const std::filesystem::path whole = std::filesystem::weakly_canonical(entry.as_string(), absent);
    if (std::ranges::find(loaded_plugins(), whole, &LoadedPlugin::path) == loaded_plugins().end())
      paths.push_back(entry.as_string());
  }
  return paths;
}

std::vector<std::string> loaded_plugin_paths() {
  std::vector<std::string> paths;
  for (const LoadedPlugin& plugin : loaded_plugins()) paths.push_back(plugin.path.string());
  return paths;
}

void store_plugins(CheckpointState& state) {
  Json list = Json::array();
  for (const LoadedPlugin& plugin : loaded_plugins())
    list.push_back(Json::Object{{"name", plugin.name}, {"version", plugin.version}, {"path", plugin.path.string()}});
  if (!list.as_array().empty()) state.extra.set(kKey, std::move(list));
}

const Json* stored_plugins(const CheckpointState& state) {
  const Json* list = state.extra.find(kKey);
  return list != nullptr && list->is_array() ? list : nullptr;
}

void require_plugins(const CheckpointState& state) {
  const Json* list = stored_plugins(state);
  if (list == nullptr) return;
  for (const Json& recorded : list->as_array()) {
    const std::string name = find_text(recorded, {"name"}), version = find_text(recorded, {"version"});
    const auto found = std::ranges::find(loaded_plugins(), name, &LoadedPlugin::name);
    QUENCH_CHECK_AS(ErrorCode::not_found, found != loaded_plugins().end(),
                    "the run was trained with plug-in '{}' {}, which is not loaded; {}", name, version,
                    remedy(find_text(recorded, {"path"})));
    if (found->version != version)
      QUENCH_LOG_WARN("the run was trained with version {} of plug-in '{}'; {} is version {}", version, name,
                      found->path.string(), found->version);
  }
}

std::string missing_plugin(const std::filesystem::path& run_folder) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(run_folder / "config.json", ignored)) return {};
  try {
    const Json config = Json::parse_file(run_folder / "config.json");
    const Json* list = plugin_list(config);
    if (list == nullptr) return {};
    for (const Json& entry : list->as_array()) {
      if (!entry.is_string()) continue;
      const std::filesystem::path path = entry.as_string();
      const bool loaded = std::ranges::any_of(
          loaded_plugins(), [&](const LoadedPlugin& plugin) { return plugin.path.filename() == path.filename(); });
      if (!loaded)
        return fmt::format("the run in {} was trained with plug-in {}, which is not loaded; {}", run_folder.string(),
                           path.filename().string(), remedy(path.string()));
    }
  } catch (const Error&) {
    return {};  // reported by what reads the run
  }
  return {};
}

}  // namespace quench
