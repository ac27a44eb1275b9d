#include "train/run/next_commands.h"
#include "train/config/objective_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/system/check.h"
#include "core/system/enum_names.h"
#include "export/table/format.h"
#include "train/config/recipe_choice.h"
#include "train/config/section_enum_names.h"
#include "train/metrics/run_files.h"
#include "train/model_folder/export_folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr int kMostNames = 100;

// No option, whatever its first character.
std::string path_word(const std::string& path) {
  return shell_word(path.starts_with('-') ? "./" + path : path);
}

// Next to the run folder, which a verb that reads it must not touch: "runs/a-merged", or the next number that is free.
std::string output_beside(const RunConfig& config, std::string_view what) {
  fs::path run = fs::path(config.run.folder).lexically_normal();
  if (!run.has_filename()) run = run.parent_path();
  if (run.empty() || run == "." || run.filename() == "..") run = fs::weakly_canonical(fs::path(config.run.folder));
  std::string output;
  for (int number = 1; number <= kMostNames; ++number) {
    output = fmt::format("{}-{}{}", run.string(), what, number == 1 ? "" : fmt::format("-{}", number));
    try {
      require_export_target({.folder = output, .sources = {config.run.folder, config.checkpoint.folder}});
      return output;
    } catch (const Error&) {  // another program's files
    }
  }
  return output;
}

// Options of `quench eval` that read data as the run does.
std::string reading_options(const DataSection& data) {
  const DataSection usual;
  std::string text;
  const auto add = [&](std::string_view option, const std::string& value, const std::string& default_value) {
    if (value != default_value) text += fmt::format(" {} {}", option, shell_word(value));
  };
  add("--format", data.format, usual.format);
  add("--field", data.text_field, usual.text_field);
  std::string columns;
  for (const auto& [field, column] : data.columns)
    columns += fmt::format("{}{}={}", columns.empty() ? "" : ",", field, column);
  add("--columns", columns, "");
  add("--chat-template", data.chat_template, usual.chat_template);
  add("--chat-date", data.chat_date, usual.chat_date);
  if (!data.chat_template_kwargs.empty()) add("--chat-template-kwargs", Json(data.chat_template_kwargs).dump(), "");
  add("--train-on", std::string(enum_name(data.train_on)), std::string(enum_name(usual.train_on)));
  add("--special-text", std::string(enum_name(data.special_text)), std::string(enum_name(usual.special_text)));
  add("--on-bad-record", std::string(enum_name(data.on_bad_record)), std::string(enum_name(usual.on_bad_record)));
  return text;
}

// Starts the run again, in as many processes.
std::string train_command(const RunConfig& config, int ranks, std::string_view options) {
  const std::string file = path_word((fs::path(config.run.folder) / run_files::kConfig).string());
  const std::string processes = ranks > 1 ? fmt::format("run --standalone --nproc-per-node {} ", ranks) : std::string();
  return fmt::format("{} {}train {}{}", program_word(), processes, file, options);
}

// Continues a stopped run, or lengthens a finished one.
std::string longer_run(const RunConfig& config, const RunEnd& end) {
  const bool by_epochs = !config.training.steps || end.steps < *config.training.steps;
  if (!end.ended_early.empty())
    return fmt::format(" --evaluation.early_stopping.patience={}", 2 * config.evaluation.early_stopping.patience);
  if (end.step < end.steps) return {};
  return by_epochs ? fmt::format(" --training.epochs={:g}", 2 * config.training.epochs.value_or(1))
                   : fmt::format(" --training.steps={}", 2 * end.steps);
}

}  // namespace

std::string shell_word(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::strchr("_./-=:,@%+", c) != nullptr;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return std::string(text);
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  const bool escaped = std::ranges::any_of(text, control);
  std::string word = escaped ? "$'" : "'";
  for (const char c : text) {
    if (control(c))
      word += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else if (escaped && (c == '\'' || c == '\\'))
      word += fmt::format("\\{}", c);
    else if (c == '\'')
      word += "'\\''";
    else
      word += c;
  }
  return word + "'";
}

std::string program_word() {
  constexpr const char* kName = "quench";
  std::error_code error;
  const char* const script = std::getenv("QUENCH_STARTED_AS");  // Python wheel: the script that pip installs
  const fs::path self =
      script != nullptr && fs::exists(script, error) ? fs::path(script) : fs::read_symlink("/proc/self/exe", error);
  if (error || self.filename() != kName) return kName;
  const char* const path = std::getenv("PATH");
  std::string_view folders = path != nullptr ? path : "";
  while (!folders.empty()) {
    const std::size_t end = std::min(folders.find(':'), folders.size());
    const fs::path found = fs::path(folders.substr(0, end)) / kName;
    if (fs::is_regular_file(found, error)) {
      if (fs::equivalent(found, self, error)) return kName;
      break;
    }
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  const fs::path started = program_invocation_name;
  return path_word((fs::equivalent(started, self, error) && started.filename() == kName ? started : self).string());
}

std::vector<std::string> next_commands(const RunConfig& config, const RunEnd& end) {
  const std::string run = path_word(config.run.folder);
  const std::string program = program_word();
  std::string quench = program;  // the last command's config names its plug-ins
  for (const std::string& plugin : config.run.plugins) quench += " --plugin " + path_word(plugin);
  const bool whole = !end.exported.empty() && config.export_model && !is_adapter_format(config.export_model->format);
  const bool usable = whole || !end.checkpoint.empty();
  const std::string model = whole ? path_word(end.exported) : run;
  std::vector<std::string> lines;
  if (usable && end.has_tokenizer)
    lines.push_back(fmt::format("{} generate --model {} {}--prompt \"{}\"", quench, model, end.chats ? "--chat " : "",
                                end.chats ? "Hello" : "Once upon a time"));
  if (usable && objective_of(config).is_likelihood && !config.data.validation.empty()) {
    std::string files;
    for (const DataSource& source : config.data.validation) files += " " + path_word(source.path);
    lines.push_back(fmt::format("{} eval --model {} --data{}{}", quench, model, files, reading_options(config.data)));
  }
  if (!end.checkpoint.empty() && !whole) {
    const Scheme* const trained = simulated_scheme(config);
    if (trained != nullptr)
      lines.push_back(fmt::format("{} quantize --checkpoint {} --scheme {} --output {}", quench, run, trained->name,
                                  path_word(output_beside(config, trained->name))));
    if (config.lora)
      lines.push_back(
          fmt::format("{} merge-lora --model {} --output {}", quench, run, path_word(output_beside(config, "merged"))));
    else if (trained == nullptr)
      lines.push_back(fmt::format("{} export --checkpoint {} --format hf --output {}", quench, run,
                                  path_word(output_beside(config, "export"))));
  }
  if (!end.checkpoint.empty()) lines.push_back(train_command(config, end.ranks, longer_run(config, end)));
  if (config.metrics.jsonl) lines.push_back(fmt::format("{} report {}", program, run));
  return lines;
}

std::string better_export_command(const RunConfig& config, const RunEnd& end) {
  return end.checkpoint.empty() ? std::string() : train_command(config, end.ranks, " --export.method=auto");
}

}  // namespace quench
