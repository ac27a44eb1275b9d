#include "train/model_source/run_layout.h"

#include "core/json/json.h"
#include "core/json/json_member.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/metrics/run_files.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

// Null if missing or unreadable.
Json read_object(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return {};
  try {
    return Json::parse_file(file, {.max_bytes = kMaxBytes});
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

bool is_run_folder(const fs::path& folder) {
  std::error_code ignored;
  if (fs::is_regular_file(folder / run_files::kEnvironment, ignored)) return true;
  const Json config = read_object(folder / run_files::kConfig);
  return find_member(config, {"training"}) != nullptr && find_member(config, {"model"}) != nullptr;
}

fs::path working_directory_of(const fs::path& run) {
  return find_text(read_object(run / run_files::kSources), {"working_directory"});
}

fs::path checkpoint_folder_of(const fs::path& run) {
  std::error_code ignored;
  const fs::path usual = run / run_files::kCheckpointFolder;
  if (fs::is_directory(usual, ignored)) return usual;
  const std::string named = find_text(read_object(run / run_files::kConfig), {"checkpoint", "folder"});
  if (named.empty()) return usual;
  const fs::path folder = working_directory_of(run) / named;
  return fs::is_directory(folder, ignored) ? folder : usual;
}

std::string no_checkpoint_message(const fs::path& folder, const fs::path& checkpoints) {
  std::string text = fmt::format("{}{} has no checkpoint that can be used", is_run_folder(folder) ? "the run in " : "",
                                 folder.string());
  std::error_code ignored;
  if (fs::is_directory(checkpoints, ignored))
    for (const CheckpointInfo& info : list_checkpoints(checkpoints).checkpoints)
      if (!info.fault.empty()) text += fmt::format("\n  {}: {}", info.path.string(), info.fault);
  text += "\nTrain until it has saved one (checkpoint.interval says how often; SIGUSR1 makes a running one save)";
  std::string exported = find_text(read_object(folder / run_files::kConfig), {"export", "folder"});
  for (const fs::path& model : {folder / "export", fs::path(exported)})
    if (!model.empty() && fs::is_regular_file(model / "config.json", ignored))
      return text + fmt::format(", or use the model that it exported: {}", model.string());
  return text;
}

}  // namespace quench
