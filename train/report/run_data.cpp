#include "train/report/run_data.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <system_error>

#include "core/json/json_member.h"
#include "core/system/check.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/metrics/json_lines.h"
#include "train/metrics/run_files.h"
#include "train/model_source/run_layout.h"

namespace quench {
namespace {

constexpr std::size_t kMaxJsonBytes = std::size_t{16} << 20;
constexpr double kMaxDecibels = 1000;            // invalid beyond
constexpr std::size_t kMaxHealthSeries = 16384;  // operands of layers
constexpr std::size_t kMaxExpertLayers = 512, kMaxExpertColumns = 1024;
constexpr std::size_t kMaxEvents = 10000;

double number_or_nan(const Json* value) {
  return value != nullptr && value->is_number() ? value->as_double() : kGap;
}

std::int64_t count_or_zero(const Json* value) {
  const double number = number_or_nan(value);
  return number >= 0 && number < 9e15 ? static_cast<std::int64_t>(number) : 0;
}

std::filesystem::path find_log(const std::filesystem::path& folder, const char* name) {
  const auto inside = folder / run_files::kMetricsFolder / name;
  std::error_code ignored;
  return std::filesystem::exists(inside, ignored) ? inside : folder / name;
}

// Run folder, or folder of its logs.
bool holds_run(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const char* log : {run_files::kMetrics, run_files::kEvaluations, run_files::kSamples, run_files::kHealth})
    if (std::filesystem::exists(find_log(folder, log), ignored)) return true;
  return is_run_folder(folder);
}

// An absent log is allowed, a damaged one noted.
template <class Each>
void read_log(const std::filesystem::path& folder, const char* name, RunData& run, Each&& each) {
  const auto path = find_log(folder, name);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  try {
    const std::size_t skipped = read_json_lines(path, each);
    if (skipped > 0) run.notes.push_back(fmt::format("{}: skipped {} lines that are not records", name, skipped));
  } catch (const Error& error) {
    run.notes.push_back(fmt::format("{}: {}", name, error.what()));
  }
}

Json read_object(const std::filesystem::path& folder, const char* name, RunData& run) {
  const auto path = folder / name;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  try {
    Json::ParseOptions options;
    options.allow_comments = true;
    options.max_bytes = kMaxJsonBytes;
    Json result = Json::parse_file(path, options);
    QUENCH_CHECK_AS(ErrorCode::corrupt, result.is_object(), "not a JSON object");
    return result;
  } catch (const Error& error) {
    run.notes.push_back(fmt::format("{}: {}", name, error.what()));
    return {};
  }
}

// Plotted.
constexpr std::size_t kMaxRanks = 512;

// Drops records at and after `step`.
void rewind(RunData& run, double step) {
  for (auto& [key, curve] : run.curves)
    curve.erase(std::partition_point(curve.begin(), curve.end(), [&](const Point& point) { return point.x < step; }),
                curve.end());
  std::erase_if(run.nonfinite_steps, [&](double flagged) { return flagged >= step; });
}

void add_step(RunData& run, const Json& record, std::int64_t step) {
  const auto x = static_cast<double>(step);
  if (step <= run.last_step) rewind(run, x);
  run.last_step = step;
  if (const auto total = count_or_zero(record.find("total_steps")); total > 0) run.total_steps = total;
  if (const double time = number_or_nan(record.find("time")); time > 0) {
    if (run.first_time == 0) run.first_time = time;
    run.last_time = time;
  }
  for (const auto& [key, value] : record.as_object()) {
    if (key == "step" || key == "time" || key == "total_steps") continue;
    if (value.is_number() || value.is_null()) run.curves[key].push_back({x, number_or_nan(&value)});
  }
  if (const Json* ranks = record.find("rank_ms"); ranks != nullptr && ranks->is_array()) {
    const auto& values = ranks->as_array();
    for (std::size_t rank = 0; rank < std::min(values.size(), kMaxRanks); ++rank)
      run.curves[fmt::format("rank_ms.{}", rank)].push_back({x, number_or_nan(&values[rank])});
  }
  const Json* flag = record.find("nonfinite");
  if (flag != nullptr && flag->is_bool() && flag->as_bool()) run.nonfinite_steps.push_back(x);
}

void add_evaluation(RunData& run, const Json& record, std::int64_t step) {
  EvaluationMetrics evaluation;
  evaluation.step = step;
  evaluation.name = find_text(record, {"name"});
  if (const Json* values = record.find("values"); values != nullptr && values->is_object())
    for (const auto& [name, value] : values->as_object()) evaluation.values.emplace_back(name, number_or_nan(&value));
  evaluation.tokens = count_or_zero(record.find("tokens"));
  evaluation.seconds = number_or_nan(record.find("seconds"));
  evaluation.unix_time = number_or_nan(record.find("time"));
  run.evaluations.push_back(std::move(evaluation));
}

class HealthReader {
 public:
  explicit HealthReader(RunData& run) : run_(run) {}

  void add(const Json& record, std::int64_t step) {
    if (step <= last_step_)
      for (HealthSeries& series : run_.health)
        std::erase_if(series.points, [&](const HealthPoint& point) { return point.step >= step; });
    last_step_ = step;
    const Json* layers = record.find("layers");
    if (layers == nullptr || !layers->is_object()) return;
    for (const auto& [layer, operands] : layers->as_object()) {
      if (!operands.is_object()) continue;
      for (const auto& [operand, values] : operands.as_object())
        if (values.is_object()) add_point(layer, operand, values, step);
    }
  }

 private:
  void add_point(const std::string& layer, const std::string& operand, const Json& values, std::int64_t step) {
    const auto known = places_.find({layer, operand});
    if (known == places_.end() && run_.health.size() >= kMaxHealthSeries) return;
    const std::size_t place = known != places_.end() ? known->second : run_.health.size();
    if (known == places_.end()) {
      places_.emplace(std::pair(layer, operand), place);
      run_.health.push_back(
          {layer, operand, find_text(values, {"format"}), find_text(values, {"rounding"}) == "stochastic", {}});
    }
    const auto share = [&](const char* key) {
      const double value = number_or_nan(values.find(key));
      return value >= 0 && value <= 1 ? value : 0.0;
    };
    const double ratio = number_or_nan(values.find("sqnr_db"));
    const Json* nonfinite = values.find("nonfinite");
    run_.health[place].points.push_back(
        {.step = step,
         .finite = nonfinite == nullptr || !nonfinite->is_bool() || !nonfinite->as_bool(),
         .sqnr = std::abs(ratio) < kMaxDecibels ? ratio : kGap,
         .saturated = share("saturated"),
         .underflow = share("underflow")});
  }

  RunData& run_;
  std::map<std::pair<std::string, std::string>, std::size_t> places_;  // (layer, operand) in run_.health
  std::int64_t last_step_ = 0;
};

// The last record counts.
void read_experts(RunData& run, const Json& record, std::int64_t step) {
  const Json* layers = record.find("layers");
  if (layers == nullptr || !layers->is_object()) return;
  run.experts.clear();
  run.experts_step = step;
  for (const auto& [number, shares] : layers->as_object()) {
    std::int64_t layer = 0;
    const char *first = number.data(), *last = number.data() + number.size();
    if (std::from_chars(first, last, layer).ptr != last || !shares.is_array()) continue;
    if (run.experts.size() >= kMaxExpertLayers || shares.as_array().size() > kMaxExpertColumns) continue;
    ExpertShares row{.layer = layer, .shares = {}};
    for (const Json& share : shares.as_array()) {
      const double value = number_or_nan(&share);
      row.shares.push_back(value >= 0 && value <= 1 ? value : 0);
    }
    run.experts.push_back(std::move(row));
  }
}

void read_checkpoints(const std::filesystem::path& folder, RunData& run) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint_folder_of(folder), error)) {
    std::error_code ignored;
    const std::string name = entry.path().filename().string();
    const auto step = parse_step_name(name);
    if (!step || !entry.is_directory(ignored) || entry.is_symlink(ignored)) continue;
    CheckpointEntry checkpoint{.name = name, .step = *step, .bytes = bytes_in(entry.path())};
    struct stat info {};
    if (::stat(entry.path().c_str(), &info) == 0) checkpoint.saved = format_utc(static_cast<double>(info.st_mtime));
    run.checkpoints.push_back(std::move(checkpoint));
  }
  std::ranges::sort(run.checkpoints, {}, &CheckpointEntry::step);
}

}  // namespace

const Curve& RunData::curve(std::string_view key) const {
  static const Curve empty;
  const auto found = curves.find(key);
  return found == curves.end() ? empty : found->second;
}

const Curve& RunData::sol_fraction() const {
  const Curve& sol = curve("sol_fraction");
  return sol.empty() ? curve("light_share") : sol;
}

Curve RunData::validation_loss() const {
  std::map<std::int64_t, double> by_step;
  for (const EvaluationMetrics& evaluation : evaluations) {
    if (evaluation.name != kValidation) continue;
    for (const auto& [key, value] : evaluation.values)
      if (key == "loss") by_step[evaluation.step] = value;
  }
  Curve result;
  for (const auto& [step, value] : by_step) result.push_back({static_cast<double>(step), value});
  return result;
}

const EvaluationMetrics* RunData::exported() const {
  const auto found = std::find_if(evaluations.rbegin(), evaluations.rend(), [](const EvaluationMetrics& evaluation) {
    return evaluation.name.starts_with(kExportEvaluation) && !evaluation.values.empty() &&
           evaluation.values.front().first == "loss";
  });
  return found == evaluations.rend() ? nullptr : &*found;
}

bool RunData::has_perplexity() const {
  return std::ranges::none_of(evaluations, [](const EvaluationMetrics& evaluation) {
    return evaluation.name == kValidation && std::ranges::any_of(evaluation.values, [](const auto& value) {
             return value.first.starts_with("rewards/");
           });
  });
}

std::uint64_t bytes_in(const std::filesystem::path& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    std::error_code unreadable;
    if (!file->is_symlink(unreadable) && file->is_regular_file(unreadable)) bytes += file->file_size(unreadable);
  }
  return bytes;
}

std::string format_utc(double unix_time) {
  if (!(unix_time > 0 && unix_time < 1e11)) return "";
  const auto seconds = static_cast<std::time_t>(unix_time);
  std::tm utc{};
  if (::gmtime_r(&seconds, &utc) == nullptr) return "";
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour,
                     utc.tm_min);
}

RunData load_run(const std::filesystem::path& folder) {
  std::error_code ignored;
  QUENCH_CHECK_AS(ErrorCode::not_found, std::filesystem::is_directory(folder, ignored), "there is no run folder {}",
                  folder.string());
  QUENCH_CHECK_AS(ErrorCode::not_found, holds_run(folder),
                  "{} is no folder of a run: it holds neither {} nor a run's {} nor logs such as {}/{}",
                  folder.string(), run_files::kEnvironment, run_files::kConfig, run_files::kMetricsFolder,
                  run_files::kMetrics);
  RunData run;
  const auto absolute = std::filesystem::weakly_canonical(folder, ignored);
  run.name = (absolute.has_filename() ? absolute : absolute.parent_path()).filename().string();
  read_log(folder, run_files::kMetrics, run,
           [&](const Json& record, std::int64_t step) { add_step(run, record, step); });
  read_log(folder, run_files::kEvaluations, run,
           [&](const Json& record, std::int64_t step) { add_evaluation(run, record, step); });
  read_log(folder, run_files::kSamples, run, [&](const Json& record, std::int64_t step) {
    run.samples.push_back({.step = step, .prompt = find_text(record, {"prompt"}), .text = find_text(record, {"text"})});
  });
  read_log(folder, run_files::kEvents, run, [&](const Json& record, std::int64_t step) {
    if (run.events.size() < kMaxEvents)
      run.events.push_back({step, find_text(record, {"event"}), find_text(record, {"message"})});
  });
  HealthReader health(run);
  read_log(folder, run_files::kExperts, run,
           [&](const Json& record, std::int64_t step) { read_experts(run, record, step); });
  read_log(folder, run_files::kHealth, run, [&](const Json& record, std::int64_t step) { health.add(record, step); });
  run.config = read_object(folder, run_files::kConfig, run);
  if (const std::string name = find_text(run.config, {"run", "name"}); !name.empty()) run.name = name;
  run.environment = read_object(folder, run_files::kEnvironment, run);
  run.recipe = read_object(folder, run_files::kRecipe, run);
  run.model = read_object(folder / run_files::kModelFolder, "config.json", run);
  read_checkpoints(folder, run);
  return run;
}

}  // namespace quench
