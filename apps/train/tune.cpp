// quench tune: from a model and chats to a quantized file, one run of the ready config `tune`.

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "apps/common.h"
#include "apps/train/train.h"
#include "apps/verbs.h"
#include "core/json/json.h"
#include "core/memory/memory_limit.h"
#include "distributed/environment.h"
#include "export/schemes/scheme.h"
#include "train/config/override.h"
#include "train/metrics/run_files.h"
#include "train/report/report.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGguf = ".gguf", kDefaultScheme = "q4_k_m", kDense = "none";

struct TuneOptions {
  std::string model, to, scheme, run_folder, memory_limit, device = "auto";
  std::vector<std::string> data;
  bool json = false, quiet = false;
};

bool is_word_end(const std::string& text, std::size_t at) {
  return at >= text.size() || std::isalnum(static_cast<unsigned char>(text[at])) == 0;
}

// The longest name of a GGUF scheme in the file's name, as in "mine-Q4_K_M.gguf"; else the default.
std::string scheme_of_file(const fs::path& file) {
  std::string stem = file.stem().string();
  std::ranges::transform(stem, stem.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string_view found;
  for (const Scheme& scheme : scheme_table()) {
    if (scheme.mix == nullptr || scheme.name.size() <= found.size()) continue;
    const std::size_t at = stem.find(scheme.name);
    if (at == std::string::npos || !is_word_end(stem, at + scheme.name.size())) continue;
    if (at == 0 || is_word_end(stem, at - 1)) found = scheme.name;
  }
  return std::string(found.empty() ? kDefaultScheme : found);
}

std::string list_text(const std::vector<std::string>& values) {
  Json list = Json::array();
  for (const std::string& value : values) list.push_back(value);
  return list.dump();
}

std::string text_value(const std::string& value) {
  return Json(value).dump();
}

// Overrides of the ready config.
std::vector<std::string> overrides_of(const TuneOptions& o) {
  const bool gguf = o.to.ends_with(kGguf);
  const std::string scheme = !o.scheme.empty() ? o.scheme : gguf ? scheme_of_file(o.to) : std::string(kDense);
  const bool dense = scheme == kDense;
  std::vector<std::string> overrides = {"--run.folder=" + text_value(o.run_folder),
                                        "--model.path=" + text_value(o.model), "--data.train=" + list_text(o.data),
                                        "--export.folder=" + text_value(o.to)};
  overrides.push_back(fmt::format("--export.format={}", gguf ? "gguf" : dense ? "hf" : "compressed-tensors"));
  overrides.push_back(dense ? "--export.scheme=null" : "--export.scheme=" + text_value(scheme));
  // For importance matrices and calibrated schemes; methods that need data are named by overrides.
  overrides.push_back("--export.calibration=" + (gguf && !dense ? list_text(o.data) : std::string("[]")));
  if (!o.memory_limit.empty()) overrides.push_back("--training.memory_limit=" + o.memory_limit);
  return overrides;
}

void tune(TuneOptions o, const std::vector<std::string>& words) {
  if (o.run_folder.empty()) {
    const fs::path to = fs::path(o.to).lexically_normal();
    const fs::path base = o.to.ends_with(kGguf) ? to.parent_path() / to.stem()
                          : to.has_filename()   ? to
                                                : to.parent_path();
    o.run_folder = base.string() + "-run";
  }
  if (!o.memory_limit.empty()) (void)require_memory_size(o.memory_limit, "--memory-limit");
  const SplitArguments further = split_arguments(words);
  QUENCH_CHECK_AS(ErrorCode::bad_config, further.words.empty(),
                  "'{}' is no option of quench tune; further settings are keys of the config, as --training.epochs=3",
                  further.words.front());
  ConfigArguments arguments{
      .config = "tune", .overrides = overrides_of(o), .device = o.device, .json = o.json, .quiet = o.quiet};
  arguments.overrides.insert(arguments.overrides.end(), further.overrides.begin(), further.overrides.end());
  train_as_configured(arguments);
  if (distributed::read_environment().rank > 0) return;
  const fs::path report = fs::path(o.run_folder) / run_files::kReport;
  (void)write_report(o.run_folder, report);
  std::fputs(fmt::format("wrote {}\n", report.string()).c_str(), o.json ? stderr : stdout);
}

}  // namespace

void add_tune_verb(const Command& app) {
  auto o = std::make_shared<TuneOptions>();
  const Command verb = app.add_command("tune", "Fine-tune a model on chats and write it quantized");
  verb.footer(
      "Usage: quench tune --model MODEL --data FILE --to FILE.gguf [--section.key=value ...]\n"
      "LoRA on the records, a twentieth of them held out; the adapters are merged, quantized with an importance matrix "
      "of\n"
      "the records, and the written file is evaluated on the held-out ones. The run folder keeps checkpoints, metrics "
      "and\n"
      "report.html; the same command resumes. Settings: quench config show tune.\n"
      "Example: quench tune --model SmolLM2-135M-Instruct --data chats.jsonl --to mine-q4_k_m.gguf "
      "--training.epochs=2");
  verb.add_option("--model", o->model, "Model folder or GGUF file").takes_hub_name().required();
  verb.add_option("--data", o->data, "Chats or other records, repeatable").required();
  verb.add_option("--to", o->to, "File *.gguf, whose name may say its scheme; or a folder for Transformers and vLLM")
      .required();
  verb.add_option("--scheme", o->scheme,
                  "Quantization scheme, or none; default: of the file's name, else q4_k_m; of a folder none")
      .type_name("SCHEME");
  verb.add_option("--run-folder", o->run_folder, "Run folder; default: --to without .gguf, and -run");
  verb.add_option("--device", o->device, "auto, cpu, cuda or cuda:N");
  verb.add_option("--memory-limit", o->memory_limit, "Limit of this process's GPU memory, such as 16GB or 12GiB");
  verb.add_flag("--quiet", o->quiet, "Warnings and errors alone");
  verb.add_flag("--json", o->json, "Print the result as JSON");
  verb.allow_other_words();
  verb.on_run([o, verb] { tune(*o, verb.other_words()); });
}

}  // namespace quench
