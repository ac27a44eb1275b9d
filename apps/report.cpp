// quench report: one HTML page with the curves, results and settings of a run.

#include <cstdio>
#include <memory>

#include "apps/common.h"
#include "apps/verbs.h"
#include "core/log.h"
#include "train/metrics/run_files.h"
#include "train/report/report.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::string run_folder;
  std::string output;
  bool json = false;
};

void run_report(const ReportOptions& options) {
  const fs::path folder = options.run_folder;
  const fs::path output = options.output.empty() ? folder / run_files::kReport : fs::path(options.output);
  const RunData run = write_report(folder, output);
  for (const std::string& note : run.notes) QUENCH_LOG_WARN("{}", note);
  if (run.curves.empty())
    QUENCH_LOG_WARN("{} holds no {}: the report has no curves", folder.string(), run_files::kMetrics);
  if (!options.json) {
    std::printf("wrote %s\n", output.string().c_str());
    return;
  }
  Json result = Json::object();
  result.set("output", output.string());
  result.set("run", run.name);
  result.set("step", run.last_step);
  result.set("total_steps", run.total_steps > 0 ? Json(run.total_steps) : Json());
  result.set("evaluations", static_cast<std::int64_t>(run.evaluations.size()));
  result.set("checkpoints", static_cast<std::int64_t>(run.checkpoints.size()));
  print_json(result);
}

}  // namespace

void add_report_verb(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* verb = app.add_subcommand("report", "Write an HTML page with the curves, results and settings of a run");
  verb->footer("Example: quench report runs/demo --output demo.html");
  verb->add_option("run_folder", options->run_folder, "Folder of the run")->required();
  verb->add_option("-o,--output", options->output, "File to write (default: report.html in the run folder)");
  verb->add_flag("--json", options->json, "Print the result as JSON");
  verb->callback([options] { run_report(*options); });
}

}  // namespace quench
