#include "train/run_folder/run_outputs.h"

#include <algorithm>
#include <system_error>

#include "core/json/json.h"
#include "core/system/file.h"
#include "core/system/key_error.h"
#include "core/system/log.h"
#include "core/system/output_folder.h"
#include "train/config/objective_table.h"
#include "train/metrics/json_lines.h"
#include "train/metrics/run_files.h"
#include "train/run_folder/run_folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kMaxOwnerBytes = 64 << 10;

// Runs write it first; a config.json alone may have another origin.
bool was_written_by_a_run(const fs::path& folder) {
  try {
    const Json environment = Json::parse(read_file(folder / run_files::kEnvironment, kMaxFileBytes));
    return environment.is_object() && environment.find("quench") != nullptr;
  } catch (const Error&) {
    return false;
  }
}

// As by Json::dump.
bool is_plain_dump(const std::string& text) {
  try {
    return Json::parse(text).dump(2) + "\n" == text;
  } catch (const Error&) {
    return false;
  }
}

void judge_folder(std::vector<OutputFault>& faults, const std::string& key, const fs::path& folder) {
  std::error_code ignored;
  const fs::file_status status = fs::status(folder, ignored);
  if (fs::exists(status) && !fs::is_directory(status))
    faults.push_back({key, fmt::format("{} exists and is not a folder", folder.string())});
}

void judge_run_folder(std::vector<OutputFault>& faults, const fs::path& folder) {
  judge_folder(faults, "run.folder", folder);
  if (has_foreign_model_part(folder))
    faults.push_back(
        {"run.folder", fmt::format("{}/{} exists and was not written by a run; choose another run.folder, or rename it",
                                   folder.string(), run_files::kModelFolder)});
  if (was_written_by_a_run(folder)) return;
  std::vector<std::string> names;
  std::error_code ignored;
  for (const char* name :
       {run_files::kConfig, run_files::kEnvironment, run_files::kRecipe, run_files::kSources, run_files::kProfile})
    if (fs::exists(fs::symlink_status(folder / name, ignored))) names.emplace_back(name);
  if (names.empty()) return;
  faults.push_back(
      {"run.folder",
       fmt::format(
           "{} holds {}, which was not written by a run and would be overwritten; choose another folder, or move it",
           folder.string(), list_names(names))});
}

}  // namespace

ExportTarget export_target(const RunConfig& config) {
  ExportTarget target{.folder = config.export_model->folder,
                      .overwrite = config.export_model->overwrite,
                      .sources = {fs::path(config.run.folder) / run_files::kModelFolder},
                      .kept = {config.run.folder, config.checkpoint.folder, config.metrics.folder, config.data.cache,
                               config.model.path, config.data.tokenizer}};
  for (const std::vector<DataSource>* data : {&config.data.train, &config.data.validation})
    for (const DataSource& source : *data) target.kept.emplace_back(source.path);
  for (const ObjectiveFolder& folder : objective_folders(config)) target.kept.emplace_back(folder.path);
  return target;
}

std::vector<OutputFault> output_faults(const RunConfig& config) {
  std::vector<OutputFault> faults;
  judge_run_folder(faults, config.run.folder);
  if (config.checkpoint.enable) judge_folder(faults, "checkpoint.folder", config.checkpoint.folder);
  judge_folder(faults, "metrics.folder", config.metrics.folder);
  if (config.export_model) {
    try {
      require_export_target(export_target(config));
    } catch (const std::exception& error) {
      faults.push_back({"export.folder", error.what()});
    }
  }
  return faults;
}

void require_outputs(const RunConfig& config) {
  std::string text;
  for (const OutputFault& fault : output_faults(config))
    text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", fault.key, fault.reason);
  QUENCH_CHECK_AS(ErrorCode::bad_config, text.empty(), "{}", text);
}

void take_metrics(const RunConfig& config, bool resumed) {
  const fs::path folder = resolved_path(config.metrics.folder), run = resolved_path(config.run.folder);
  const fs::path file = folder / run_files::kMetricsOwner;
  std::error_code ignored;
  fs::path owner;
  if (fs::is_regular_file(file, ignored)) {
    const std::string text = read_file(file, kMaxOwnerBytes);
    owner = resolved_path(folder / text.substr(0, text.find('\n')));
  } else if (is_within(folder, run)) {
    owner = run;  // earlier versions wrote no such file
  }
  const bool holds_records = std::ranges::any_of(run_files::kJsonLines, [&](const char* name) {
    return fs::exists(folder / name, ignored) && fs::file_size(folder / name, ignored) > 0;
  });
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "metrics.folder", !resumed || owner == run || !holds_records,
                   "{} holds records of {}, which the resumed run {} would rewrite; choose another metrics.folder; if "
                   "they are this run's: echo {} > {}",
                   config.metrics.folder, owner.empty() ? "no known run" : owner.string(), config.run.folder,
                   run.string(), file.string());
  try {
    fs::create_directories(folder);
    write_file_atomically(file, run.lexically_relative(folder).string());
  } catch (const std::exception&) {
    return;  // the metrics' own files fail with a warning
  }
}

RunConfig continuing_config(RunConfig config) {
  config.checkpoint.resume = {};
  config.checkpoint.allow_changes.clear();
  return config;
}

void warn_of_lost_checkpoints(const RunConfig& config) {
  std::int64_t last = 0;
  try {
    (void)read_json_lines(fs::path(config.metrics.folder) / run_files::kMetrics,
                          [&](const Json&, std::int64_t step) { last = std::max(last, step); });
  } catch (const Error&) {
    return;  // no such log
  }
  if (last > 0)
    QUENCH_LOG_WARN(
        "{} has records up to step {}, but {} holds no checkpoint: training starts at step 0; if checkpoints were "
        "saved, "
        "stop this run and mount or restore their folder",
        config.metrics.folder, last, config.checkpoint.folder);
}

void set_aside_edited(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error) || is_plain_dump(read_file(file, kMaxFileBytes))) return;
  fs::path target;
  for (int number = 1; target.empty() || fs::exists(fs::symlink_status(target)); ++number)
    target = fmt::format("{}.{}", file.string(), number);
  rename_durably(file, target);
  QUENCH_LOG_INFO("{} was edited by hand; kept as {}", file.string(), target.filename().string());
}

}  // namespace quench
