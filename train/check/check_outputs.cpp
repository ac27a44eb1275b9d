#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/system/missing_path.h"
#include "core/system/nearest_name.h"
#include "data/sampling/data_formats.h"
#include "data/text/chat_template.h"
#include "data/text/text_format.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/check/checks.h"
#include "train/config/data_files.h"
#include "train/config/fields/field.h"
#include "train/config/objective_table.h"
#include "train/metrics/run_files.h"
#include "train/model_source/hub_hint.h"
#include "train/model_source/run_layout.h"
#include "train/remote/remote_checkpoints.h"
#include "train/run_folder/run_outputs.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

bool looks_like_text(const DataSource& source) {
  std::error_code ignored;
  if (!fs::is_directory(source.path, ignored)) return text_format_of(source.path) != nullptr;
  return !fs::exists(fs::path(source.path) / "dataset.json", ignored);  // shard folder
}

void check_sources(Checker& checker, const std::string& key, const std::vector<DataSource>& sources) {
  if (!checker.options().files || !checker.usable({key})) return;
  for (const DataSource& source : sources) {
    if (!expand_pattern(source.path).empty()) continue;
    checker.report(key, "no file matches \"{}\"{}{}", source.path, working_directory_text(source.path),
                   hub_data_hint(source.path));
    checker.suggest(nearest_path(source.path));
    // resumed from another working directory
    const fs::path before = working_directory_of(checker.config().run.folder) / source.path;
    if (!expand_pattern(before.string()).empty()) checker.suggest(before.string());
  }
}

void check_tokenizer(Checker& checker) {
  const DataSection& data = checker.config().data;
  if (!checker.usable({"data.tokenizer", "data.format", "data.train", "model.path"})) return;
  if (data.tokenizer.empty()) {
    if (!checker.config().model.path.empty() || !checker.options().data) return;
    const DataFormat format = data_format_named(data.format);
    const bool automatic = format.text == nullptr && format.tokens == nullptr;
    const bool by_name = automatic && std::any_of(data.train.begin(), data.train.end(), looks_like_text);
    if (format.text != nullptr || by_name)
      checker.report("data.tokenizer", "missing: data.train is text, and there is no model.path to take one from");
    return;
  }
  std::error_code ignored;
  if (checker.options().files && !is_tokenizer_word(data.tokenizer) && !fs::exists(data.tokenizer, ignored)) {
    const std::string kept = kept_model_part(checker.config());
    const std::string word = nearest_name(data.tokenizer, tokenizer_words());
    checker.report("data.tokenizer", "{}: no such file or folder{}{}", data.tokenizer,
                   word.empty() ? working_directory_text(data.tokenizer) : "", hub_hint(data.tokenizer));
    checker.suggest(!kept.empty() ? kept : !word.empty() ? word : nearest_path(data.tokenizer));
  }
}

void check_chats(Checker& checker) {
  const std::string& name = checker.config().data.chat_template;
  if (!checker.usable({"data.chat_template"})) return;
  if (!is_chat_template_file(name)) {
    const std::vector<std::string> names = chat_template_names();
    if (std::ranges::find(names, name) != names.end()) return;
    checker.report("data.chat_template", "\"{}\"; expected {}, or the path of a .jinja file", name,
                   fmt::join(names, ", "));
    checker.suggest(nearest_name(name, names));
    return;
  }
  std::error_code ignored;
  if (checker.options().files && !fs::is_regular_file(name, ignored)) {
    checker.report("data.chat_template", "{}: no such file{}", name, working_directory_text(name));
    checker.suggest(nearest_path(name));
  }
}

void check_resume(Checker& checker) {
  const CheckpointSection& checkpoint = checker.config().checkpoint;
  if (!checker.options().files || !checker.usable({"checkpoint.resume", "checkpoint.folder"})) return;
  std::error_code ignored;
  const ResumeFrom& resume = checkpoint.resume;
  if (resume.mode == ResumeFrom::Mode::path) {
    if (fs::is_directory(resume.path, ignored)) return;
    checker.report("checkpoint.resume", "{}: no such folder; expected auto, never, must, a step or a checkpoint",
                   resume.path);
    checker.suggest(nearest_name(resume.path, std::vector<std::string>{"auto", "never", "must"}));
  } else if (checkpoint.remote.empty() &&
             (resume.mode == ResumeFrom::Mode::must || resume.mode == ResumeFrom::Mode::step) &&
             !fs::is_directory(checkpoint.folder, ignored)) {
    const std::string wanted = resume.mode == ResumeFrom::Mode::must ? "must" : fmt::format("step {}", resume.step);
    checker.report("checkpoint.resume", "{}, but checkpoint.folder {} does not exist", wanted, checkpoint.folder);
  }
}

void check_remote(Checker& checker) {
  const CheckpointSection& checkpoint = checker.config().checkpoint;
  if (checkpoint.remote.empty() || !checker.options().files || !checker.usable({"checkpoint.remote"})) return;
  checker.judge("checkpoint.remote", [&] { require_remote_settings(checkpoint); });
}

void check_allowed_changes(Checker& checker) {
  if (!checker.usable({"checkpoint.allow_changes"})) return;
  for (const std::string& key : checker.config().checkpoint.allow_changes) {
    const Field* field = find_field(key);
    if (field == nullptr) {
      checker.report("checkpoint.allow_changes", "\"{}\" is not a config key", key);
      checker.suggest(nearest_field(key));
    } else if (field->resume == ResumePolicy::fixed) {
      checker.report("checkpoint.allow_changes", "{} can never change on resume: the stored state would not fit", key);
    }
  }
}

}  // namespace

void check_packing(Checker& checker) {
  const DataSection& data = checker.config().data;
  if (!checker.usable({"data.packing", "data.multipack", "data.on_long"})) return;
  if (data.multipack && !data.packing)
    checker.report("data.multipack", "true, but data.packing is false: sequences hold one document each");
  if (data.on_long != DataSection{}.on_long && data.packing && !data.multipack &&
      answer_records(checker.config()) == AnswerRecords::none)
    checker.report(
        "data.on_long",
        "{}, but sequences are cut from the stream of documents; set data.multipack to true, or data.packing to false",
        enum_name(data.on_long));
}

void check_validation_split(Checker& checker) {
  const DataSection& data = checker.config().data;
  if (!data.validation_split || !checker.usable({"data.validation", "data.validation_split"})) return;
  const double share = *data.validation_split;
  if (!data.validation.empty())
    checker.report("data.validation_split", "{:g}, but data.validation names held-out data; keep one of the two",
                   share);
  if (share >= 1 && share != std::floor(share))
    checker.report("data.validation_split", "{:g}; expected a fraction below 1, or a whole number of records", share);
}

void check_data(Checker& checker) {
  const DataSection& data = checker.config().data;
  if (checker.options().data && data.train.empty() && checker.usable({"data.train"}))
    checker.report("data.train", "no training data: give files, for example [\"shards/train-*.bin\"]");
  check_sources(checker, "data.train", data.train);
  check_sources(checker, "data.validation", data.validation);
  check_validation_split(checker);
  check_packing(checker);
  check_tokenizer(checker);
  check_chats(checker);
}

void check_outputs(Checker& checker) {
  const std::string& name = checker.config().run.name;
  if (checker.usable({"run.name"}) && (name.find('/') != std::string::npos || name == "." || name == ".."))
    checker.report("run.name", "\"{}\" cannot name a folder; use run.folder for a path", name);
  if (checker.options().files) {
    for (const OutputFault& fault : output_faults(checker.config()))
      if (checker.usable({fault.key})) checker.report(fault.key, "{}", fault.reason);
  }
  check_resume(checker);
  check_remote(checker);
  check_allowed_changes(checker);
}

}  // namespace quench
