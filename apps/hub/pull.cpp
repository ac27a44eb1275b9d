// quench pull: models and data sets of the Hugging Face Hub.

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/common.h"
#include "apps/hub/hub_common.h"
#include "apps/hub/s3_verbs.h"
#include "apps/verbs.h"
#include "core/system/log.h"
#include "core/system/signals.h"
#include "data/hub/cache.h"
#include "data/hub/pull.h"
#include "train/metrics/progress_line.h"

namespace quench {
namespace {

struct PullArguments {
  std::string name;
  std::string repo_type;
  std::string revision;
  hub::PullOptions options;
  bool dry_run = false;
  bool json = false;
  bool quiet = false;
};

bool holds_generator(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const char* tokenizer : {"tokenizer.json", "tokenizer.model"})
    if (std::filesystem::exists(folder / tokenizer, ignored) &&
        std::filesystem::exists(folder / "config.json", ignored))
      return true;
  return false;
}

// Word of a shell, quoted where it needs to be.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
  if (!word.starts_with('-') && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Command that uses what was downloaded, as one types it.
std::string next_command(const hub::HubName& name, const std::filesystem::path& folder, bool in_cache) {
  const std::string where = shell_word(in_cache ? name.text() : folder.string());
  if (name.type == hub::RepoType::dataset)
    return fmt::format("quench tokenize --tokenizer bytes --input {} --output shards", where);
  if (holds_generator(folder)) return fmt::format("quench generate --model {} --prompt \"Hello\"", where);
  return fmt::format("quench inspect {}", where);
}

void print_left_out(const hub::FileChoice& choice) {
  for (const auto& [format, files] : choice.left_out) {
    std::uint64_t bytes = 0;
    for (const hub::HubFile& file : files) bytes += file.size;
    std::printf("left out, next to safetensors: weights of %s (%s%s, %s)\n", format.c_str(), files.front().path.c_str(),
                files.size() > 1 ? fmt::format(" and {} more", files.size() - 1).c_str() : "",
                bytes_text(bytes).c_str());
  }
  if (!choice.left_out.empty()) std::printf("--include '*' downloads them too\n");
}

void print_plan(const hub::PullPlan& plan) {
  for (const hub::HubFile& file : plan.choice.files)
    std::printf("%12s  %s\n", bytes_text(file.size).c_str(), file.path.c_str());
  std::printf("%12s  %zu files of %s at commit %s\n", bytes_text(plan.bytes()).c_str(), plan.choice.files.size(),
              plan.name.text().c_str(), plan.commit.c_str());
  print_left_out(plan.choice);
}

Json files_json(const hub::PullPlan& plan) {
  Json list = Json::array();
  for (const hub::HubFile& file : plan.choice.files)
    list.push_back(Json::Object{{"path", file.path}, {"bytes", file.size}, {"digest", file.etag()}});
  return list;
}

// HF_HUB_OFFLINE: what the cache has.
void show_cached(const PullArguments& a, const hub::HubSettings& settings, const hub::HubName& name) {
  const std::filesystem::path snapshot = hub::cached_snapshot(settings.cache, name);
  QUENCH_CHECK_AS(ErrorCode::not_found, !snapshot.empty() && a.options.folder.empty(),
                  "HF_HUB_OFFLINE is set: {} is not downloaded{}; unset it to ask {}", name.text(),
                  snapshot.empty() ? fmt::format(" and not in the cache {}", settings.cache.string()) : "",
                  settings.endpoint);
  QUENCH_LOG_WARN("HF_HUB_OFFLINE is set: {} is in the cache, the hub was not asked for a newer commit", name.text());
  if (a.json) return print_json(Json::Object{{"folder", snapshot.string()}, {"commit", snapshot.filename().string()}});
  std::printf("%s\n%s\n", snapshot.c_str(), next_command(name, snapshot, true).c_str());
}

// Options of the hub alone.
void require_no_hub_options(const PullArguments& a) {
  const bool given = !a.repo_type.empty() || !a.revision.empty() || !a.options.patterns.include.empty() ||
                     !a.options.patterns.exclude.empty();
  QUENCH_CHECK_AS(ErrorCode::bad_config, !given,
                  "{} is no repository of the hub: --revision, --repo-type, --include and --exclude do not apply",
                  a.name);
}

void run_pull(PullArguments& a) {
  if (is_s3_address(a.name)) {
    require_no_hub_options(a);
    return pull_from_s3(a.name, a.options.folder,
                        {.overwrite = a.options.overwrite, .dry_run = a.dry_run, .json = a.json, .quiet = a.quiet});
  }
  const hub::HubName name = hub_name_of(a.name, a.repo_type, a.revision);
  const hub::HubSettings settings = hub::HubSettings::from_environment();
  if (a.quiet) quieten_log();
  if (settings.offline) return show_cached(a, settings, name);
  a.options.stop = poll_stop_signals();
  const hub::PullPlan plan = hub::plan_pull(settings, name, a.options);
  if (a.dry_run) {
    if (a.json) return print_json(Json::Object{{"commit", plan.commit}, {"files", files_json(plan)}});
    return print_plan(plan);
  }
  const hub::PullResult result = [&] {
    ProgressLine line(fmt::format("downloading {}", name.id));
    hub::PullOptions options = a.options;
    options.progress = [&](std::uint64_t done, std::uint64_t total) { line.update(done, total); };
    return hub::pull(settings, plan, options);
  }();
  if (a.json)
    return print_json(Json::Object{{"folder", result.folder.string()},
                                   {"commit", plan.commit},
                                   {"fetched_files", result.fetched_files},
                                   {"fetched_bytes", result.fetched_bytes},
                                   {"files", files_json(plan)}});
  if (a.quiet) return;
  std::printf("%s at commit %s: %zu files, %s; fetched %zu files, %s\n", name.text().c_str(), plan.commit.c_str(),
              plan.choice.files.size(), bytes_text(plan.bytes()).c_str(), result.fetched_files,
              bytes_text(result.fetched_bytes).c_str());
  print_left_out(plan.choice);
  std::printf("%s\n%s\n", result.folder.c_str(), next_command(name, result.folder, a.options.folder.empty()).c_str());
}

}  // namespace

void add_pull_verb(const Command& app) {
  auto a = std::make_shared<PullArguments>();
  const Command verb =
      app.add_command("pull", "Download a model or data set of the Hugging Face Hub, or a folder of S3 storage");
  verb.footer(
      "Without --local-dir the files go to the cache that Transformers and vLLM use; hf:ORG/NAME then names the model\n"
      "for every verb and config key. Interrupted downloads continue where they stopped. Private and gated "
      "repositories:\n"
      "an access token in HF_TOKEN, or as `hf auth login` stores it. Of S3-compatible storage, all below the address:\n"
      "quench pull s3://BUCKET/PREFIX --local-dir FOLDER, with the AWS command line's variables.\n"
      "Example: quench pull hf:HuggingFaceTB/SmolLM2-135M");
  verb.add_option("NAME", a->name,
                  "hf:ORG/NAME or hf:ORG/NAME@REVISION; of data sets hf:datasets/ORG/NAME; or s3://BUCKET/PREFIX")
      .required();
  verb.add_option("--revision", a->revision, "Branch, tag or commit; default: main");
  verb.add_option("--repo-type", a->repo_type, "model (default) or dataset");
  verb.add_option("--include", a->options.patterns.include,
                  "Patterns of files, such as '*.gguf'; default: all that a program needs");
  verb.add_option("--exclude", a->options.patterns.exclude, "Patterns of files to leave out");
  verb.add_option("--local-dir", a->options.folder, "Folder for the files, in place of the cache");
  verb.add_flag("--overwrite", a->options.overwrite, "Replace files of other content in --local-dir");
  verb.add_option("--max-workers", a->options.workers, "Files at a time").between(1, 64).show_default();
  verb.add_flag("--dry-run", a->dry_run, "List the files and their sizes only");
  verb.add_flag("--json", a->json, "Print the result as JSON");
  verb.add_flag("--quiet", a->quiet, "Show warnings and errors only");
  verb.on_run(
      [a] { run_stoppable([&] { run_pull(*a); }, "what has arrived is kept, and the same command continues"); });
}

}  // namespace quench
