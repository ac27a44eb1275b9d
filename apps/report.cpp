// quench report: HTML page with curves, results and settings of one or several runs.

#include <cstdio>
#include <memory>

#include "apps/common.h"
#include "apps/verbs.h"
#include "core/system/log.h"
#include "core/system/output_file.h"
#include "train/metrics/run_files.h"
#include "train/report/report.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::vector<std::string> run_folders;
  std::string output;
  std::vector<std::string> attached;
  bool overwrite = false;
  bool json = false;
};

void warn(const RunData& run, const fs::path& folder) {
  for (const std::string& note : run.notes) QUENCH_LOG_WARN("{}", note);
  if (run.curves.empty())
    QUENCH_LOG_WARN("{} holds no {}: the report has no curves", folder.string(), run_files::kMetrics);
}

Json describe(const RunData& run) {
  Json result = Json::object();
  result.set("run", run.name);
  result.set("step", run.last_step);
  result.set("total_steps", run.total_steps > 0 ? Json(run.total_steps) : Json());
  result.set("evaluations", static_cast<std::int64_t>(run.evaluations.size()));
  result.set("samples", static_cast<std::int64_t>(run.samples.size()));
  result.set("checkpoints", static_cast<std::int64_t>(run.checkpoints.size()));
  return result;
}

void run_report(const ReportOptions& options) {
  const std::vector<fs::path> folders(options.run_folders.begin(), options.run_folders.end());
  const bool several = folders.size() > 1;
  QUENCH_CHECK_AS(ErrorCode::bad_config, !several || !options.output.empty(),
                  "a comparison of runs needs a file to write: name it with --output");
  QUENCH_CHECK_AS(ErrorCode::bad_config, !several || options.attached.empty(), "--attach needs the report of one run");
  const std::vector<fs::path> attached(options.attached.begin(), options.attached.end());
  const fs::path output = options.output.empty() ? folders.front() / run_files::kReport : fs::path(options.output);
  OutputFileRules rules{.overwrite = options.overwrite, .is_own = is_report};
  for (const fs::path& file : attached) rules.inputs.push_back(file);
  for (const fs::path& folder : folders)
    for (const char* name : {run_files::kConfig, run_files::kEnvironment}) rules.inputs.push_back(folder / name);
  // A missing run folder is reported by the run's reader.
  if (std::error_code ignored; !options.output.empty() || fs::is_directory(folders.front(), ignored))
    require_output_file(output, rules);
  std::vector<RunData> runs;
  if (several)
    runs = write_comparison(folders, output);
  else
    runs.push_back(write_report(folders.front(), output, attached));
  for (std::size_t i = 0; i < runs.size(); ++i) warn(runs[i], folders[i]);
  if (!options.json) {
    std::printf("wrote %s\n", output.string().c_str());
    return;
  }
  Json result = several ? Json::object() : describe(runs.front());
  result.set("output", output.string());
  if (several) {
    Json list = Json::array();
    for (const RunData& run : runs) list.push_back(describe(run));
    result.set("runs", std::move(list));
  }
  print_json(result);
}

}  // namespace

void add_report_verb(const Command& app) {
  auto options = std::make_shared<ReportOptions>();
  const Command verb =
      app.add_command("report", "Write an HTML page with the curves, results and settings of one or several runs");
  verb.footer(
      "Example: quench report runs/demo --output demo.html\n"
      "         quench report runs/a runs/b --output comparison.html");
  verb.add_option("run_folder", options->run_folders, "Folder of the run; several are compared").required();
  verb.add_option("-o,--output", options->output,
                  "File to write (default: report.html in the run folder; a comparison has none)");
  verb.add_option("--attach", options->attached,
                  "Text files to show first, such as the table that `quench eval` printed");
  verb.add_flag("--overwrite", options->overwrite, "Replace a file that is not a report");
  verb.add_flag("--json", options->json, "Print the result as JSON");
  verb.on_run([options] { run_report(*options); });
}

}  // namespace quench
