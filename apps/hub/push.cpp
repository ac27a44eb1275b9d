// quench push: an exported model to a repository of the Hugging Face Hub.

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/common.h"
#include "apps/hub/hub_common.h"
#include "apps/hub/s3_verbs.h"
#include "apps/verbs.h"
#include "core/system/log.h"
#include "core/system/output_folder.h"
#include "core/system/signals.h"
#include "data/hub/push.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/metrics/progress_line.h"
#include "train/model_folder/export_folder.h"
#include "train/model_folder/model_card.h"
#include "train/model_source/model_source.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

struct PushArguments {
  fs::path folder;
  std::string name;
  std::string revision;
  hub::PushOptions options;
  bool dry_run = false;
  bool json = false;
  bool quiet = false;
};

// Model files of a folder; logs, secrets, code and whatever else is there stay.
struct FolderFiles {
  std::vector<std::string> pushed, left;
};

FolderFiles files_of_model(const fs::path& folder) {
  FolderFiles files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool belongs = is_export_file(name) || name == kModelCardName || name.ends_with(".gguf");
    std::error_code ignored;
    (belongs && fs::is_regular_file(entry.path(), ignored) ? files.pushed : files.left)
        .push_back(fs::is_directory(entry.path(), ignored) ? name + "/" : name);
  }
  std::ranges::sort(files.pushed);
  std::ranges::sort(files.left);
  return files;
}

// Throws bad_config for folders that are no exported model, with what to name instead.
void require_exported_model(const fs::path& folder) {
  const ModelSource source = ModelSource::open(folder);
  const bool is_folder =
      source.kind() == ModelSourceKind::model_folder || source.kind() == ModelSourceKind::adapter_folder;
  QUENCH_CHECK_AS(ErrorCode::bad_config, source.kind() != ModelSourceKind::gguf_file,
                  "{} is a file; name the folder that holds it", folder.string());
  if (!is_folder) source.require_model();  // names the export
  QUENCH_CHECK_AS(ErrorCode::bad_config, !source.weights().empty() || !source.adapter().empty(),
                  "{} has no weights; name the folder of an exported model", folder.string());
}

void print_names(const char* label, const std::vector<std::string>& names) {
  if (!names.empty()) std::printf("%s: %s\n", label, list_names(names).c_str());
}

Json list_json(const std::vector<std::string>& names) {
  Json list = Json::array();
  for (const std::string& name : names) list.push_back(name);
  return list;
}

void print_dry_run(const PushArguments& a, const std::string& name, const FolderFiles& files) {
  if (a.json)
    return print_json(
        Json::Object{{"repository", name}, {"files", list_json(files.pushed)}, {"left", list_json(files.left)}});
  std::uint64_t total = 0;
  for (const std::string& file : files.pushed) {
    const std::uint64_t bytes = fs::file_size(a.folder / file);
    total += bytes;
    std::printf("%12s  %s\n", bytes_text(bytes).c_str(), file.c_str());
  }
  std::printf("%12s  %zu files to %s\n", bytes_text(total).c_str(), files.pushed.size(), name.c_str());
  print_names("not of the model, stay here", files.left);
}

void print_result(const PushArguments& a, const hub::HubName& name, const hub::PushResult& result,
                  const FolderFiles& files) {
  if (a.json)
    return print_json(Json::Object{{"repository", name.text()},
                                   {"commit", result.commit},
                                   {"url", result.url},
                                   {"new_repository", result.new_repository},
                                   {"sent", list_json(result.sent)},
                                   {"unchanged", list_json(result.unchanged)},
                                   {"ignored", list_json(result.ignored)},
                                   {"left", list_json(files.left)}});
  if (a.quiet) return;
  print_names("not of the model, stay here", files.left);
  print_names("left out by the repository's .gitignore", result.ignored);
  if (result.sent.empty())
    std::printf("%s has these %zu files already\n", name.text().c_str(), result.unchanged.size());
  else
    std::printf("sent %zu files, %zu were there; commit %s\n", result.sent.size(), result.unchanged.size(),
                result.commit.c_str());
  std::printf("%s\n", result.url.c_str());
  if (!a.options.as_request) std::printf("quench pull %s\n", name.text().c_str());
}

// A model's files, or those of a checkpoint.
void run_push_to_s3(const PushArguments& a) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, !a.options.is_private && !a.options.as_request && a.revision.empty(),
                  "{} is no repository of the hub: --private, --create-pr and --revision do not apply", a.name);
  std::error_code ignored;
  FolderFiles files;
  if (fs::exists(a.folder / Manifest::kFileName, ignored)) {
    files.pushed.emplace_back(Manifest::kFileName);
    for (const DataFileRecord& record : read_manifest(a.folder).files) files.pushed.push_back(record.name);
  } else {
    require_exported_model(a.folder);
    files = files_of_model(a.folder);
  }
  if (a.dry_run) return print_dry_run(a, a.name, files);
  push_to_s3(a.folder, files.pushed, a.name, {.json = a.json, .quiet = a.quiet});
}

void run_push(const PushArguments& a) {
  if (is_s3_address(a.name)) return run_push_to_s3(a);
  const hub::HubName name = hub_name_of(a.name, {}, a.revision);
  QUENCH_CHECK_AS(ErrorCode::bad_config, name.type == hub::RepoType::model,
                  "{} is a data set; quench push uploads models", a.name);
  if (a.quiet) quieten_log();
  require_exported_model(a.folder);
  const FolderFiles files = files_of_model(a.folder);
  if (a.dry_run) return print_dry_run(a, name.text(), files);
  const hub::HubSettings settings = hub::HubSettings::from_environment();
  const hub::PushResult result = [&] {
    ProgressLine line(fmt::format("uploading {}", name.id));
    hub::PushOptions options = a.options;
    options.stop = poll_stop_signals();
    options.progress = [&](std::uint64_t done, std::uint64_t total) { line.update(done, total); };
    return hub::push(settings, name, a.folder, files.pushed, options);
  }();
  print_result(a, name, result, files);
}

}  // namespace

void add_push_verb(const Command& app) {
  auto a = std::make_shared<PushArguments>();
  const Command verb = app.add_command("push", "Upload an exported model to the Hugging Face Hub or to S3 storage");
  verb.footer(
      "Sends the model's files (config, weights, tokenizer, model card, licences) in one commit, and nothing else of "
      "the\n"
      "folder; files that the repository has are not sent again. The access token is read from HF_TOKEN, or as\n"
      "`hf auth login` stores it. To S3-compatible storage, with the AWS command line's variables; checkpoints too:\n"
      "quench push runs/demo/checkpoints/step-500 s3://BUCKET/PREFIX/step-500\n"
      "Example: quench push runs/demo/export hf:me/demo --private");
  verb.add_option("FOLDER", a->folder, "Folder of an exported model or PEFT adapter; for S3 storage a checkpoint too")
      .required();
  verb.add_option("NAME", a->name,
                  "hf:ORG/NAME or hf:ORG/NAME@BRANCH, made if it does not exist; or s3://BUCKET/PREFIX")
      .required();
  verb.add_flag("--private", a->options.is_private, "A new repository is private; a public one is refused");
  verb.add_option("--revision", a->revision, "Branch, made from main if it does not exist; default: main");
  verb.add_option("--message", a->options.message, "First line of the commit's message").show_default();
  verb.add_flag("--create-pr", a->options.as_request, "Open a pull request in place of a commit to the branch");
  verb.add_flag("--dry-run", a->dry_run, "List the files only; asks no server");
  verb.add_flag("--json", a->json, "Print the result as JSON");
  verb.add_flag("--quiet", a->quiet, "Show warnings and errors only");
  verb.on_run(
      [a] { run_stoppable([&] { run_push(*a); }, "the same command continues with the files that are missing"); });
}

}  // namespace quench
