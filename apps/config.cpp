#include "apps/config.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "apps/config/config_summary.h"
#include "apps/options/config_arguments.h"
#include "apps/reference_page.h"
#include "core/system/file.h"
#include "core/system/output_file.h"
#include "nn/spec/model_config.h"
#include "nn/spec/model_family.h"
#include "train/check/load.h"
#include "train/config/config_diff.h"
#include "train/config/config_schema.h"
#include "train/config/override.h"
#include "train/config/presets.h"
#include "train/plan/run_check.h"
#include "train/run/text_check.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxPageBytes = std::uint64_t{16} << 20;
constexpr CheckOptions kAnywhere{.data = false, .files = false, .plugins = false};

void print(std::string_view text) {
  // fmt::print throws on a failed write; write errors are reported at exit for all verbs.
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
}

// Lower case, letters and digits alone: "gemma-3" is also "gemma3_text".
std::string family_key(std::string_view text) {
  std::string key;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return key;
}

// Models whose model_type or name begins with the family's, and runs that name one. `family`: a family_key().
bool is_of_family(const EmbeddedConfig& config, std::string_view family) {
  if (config.kind == "models")
    return family_key(config.name).starts_with(family) ||
           family_key(nn::parse_model_config(Json::parse(config.text), config.name).model_type).starts_with(family);
  const EmbeddedConfig* model = model_of_run(config);
  return model != nullptr && is_of_family(*model, family);
}

struct ListArguments {
  std::string kind, family;  // empty: all
  bool json = false;
};

void list_configs(const ListArguments& arguments) {
  const auto& [kind, family, json] = arguments;
  QUENCH_CHECK_AS(ErrorCode::bad_config, kind.empty() || kind == "models" || kind == "runs",
                  "KIND '{}' is unknown; use models or runs, or --family {} for the models of a family", kind, kind);
  const std::string wanted = family_key(family);
  QUENCH_CHECK_AS(ErrorCode::bad_config, family.empty() || !wanted.empty(), "--family '{}' is not a name", family);
  Json list = Json::array();
  std::string text = fmt::format("{:<8}{:<28}{}", "KIND", "NAME", "WHAT");
  for (const EmbeddedConfig& config : embedded_configs()) {
    if (!kind.empty() && config.kind != kind) continue;
    if (!wanted.empty() && !is_of_family(config, wanted)) continue;
    const std::string what = summary_line(config);
    text += fmt::format("\n{:<8}{:<28}{}", config.kind, config.name, what);
    Json entry(Json::Object{{"kind", config.kind}, {"name", config.name}, {"what", what}});
    if (config.kind == "runs") {
      const RunSummary run = summarize_run(config);
      entry.set("model", run.model);
      entry.set("method", run.method);
      entry.set("gpu_memory", run.gpu.empty() ? Json() : Json(run.gpu));
      entry.set("export", run.exported.empty() ? Json() : Json(run.exported));
    }
    list.push_back(std::move(entry));
  }
  if (list.as_array().empty()) {
    std::set<std::string> known;
    for (const nn::ModelFamily& one : nn::model_families()) known.emplace(one.model_type);
    QUENCH_FAIL(ErrorCode::bad_config, "no embedded {} of family '{}'; model types: {}",
                kind == "runs"     ? "run is"
                : kind == "models" ? "model is"
                                   : "config is",
                family, fmt::join(known, ", "));
  }
  print(json ? list.dump(2) : text);
}

const EmbeddedConfig& find_by_name(const std::string& name) {
  const std::size_t slash = name.find('/');
  std::string nearest;
  for (const std::string_view kind : {"runs", "models"}) {
    if (slash != std::string::npos && name.substr(0, slash) != kind) continue;
    const std::string bare = slash == std::string::npos ? name : name.substr(slash + 1);
    if (const EmbeddedConfig* config = find_embedded_config(kind, bare)) return *config;
    if (nearest.empty()) nearest = nearest_embedded_config(kind, bare);
  }
  throw ConfigError({{name, "", "no embedded config has that name; `quench config ls` lists them", nearest}});
}

// True for an unmodified copy of an embedded config.
bool is_unedited_copy(const fs::path& file) {
  const std::string text = read_file(file, kMaxPageBytes);
  return std::ranges::any_of(embedded_configs(), [&](const EmbeddedConfig& config) { return config.text == text; });
}

struct CopyArguments {
  std::string name, destination;
  bool no_clobber = false, overwrite = false, make_parents = false;
};

void copy_config(const CopyArguments& arguments) {
  const auto& [name, destination, no_clobber, overwrite, make_parents] = arguments;
  const EmbeddedConfig& config = find_by_name(name);
  fs::path target = destination;
  if (fs::is_directory(target)) target /= fmt::format("{}.json", config.name);
  if (no_clobber && fs::exists(target)) {
    print(fmt::format("{} exists, not overwritten", target.string()));
    return;
  }
  const fs::path parent = target.parent_path();
  if (make_parents && !parent.empty()) fs::create_directories(parent);
  QUENCH_CHECK_AS(ErrorCode::bad_config, parent.empty() || fs::is_directory(parent),
                  "{}: no such folder; --make-parents creates it", parent.string());
  require_output_file(target, {.option = "DEST", .overwrite = overwrite, .is_own = is_unedited_copy});
  write_file_atomically(target, config.text);
  print(fmt::format("copied {}/{} to {}", config.kind, config.name, target.string()));
}

// Config and overrides of the command line.
struct Request {
  std::string config;
  std::vector<std::string> overrides;
};

Request read_request(const Command& verb) {
  SplitArguments arguments = split_arguments(verb.other_words());
  QUENCH_CHECK_AS(ErrorCode::bad_config, arguments.words.size() == 1,
                  "quench config {} needs one config: a JSON file, or a name that `quench config ls` shows{}",
                  verb.name(),
                  arguments.words.empty() ? "" : fmt::format("; got {}", fmt::join(arguments.words, ", ")));
  return {arguments.words[0], std::move(arguments.overrides)};
}

Json to_json(const std::vector<ConfigIssue>& issues) {
  Json list = Json::array();
  for (const ConfigIssue& issue : issues) {
    list.push_back(Json(Json::Object{{"origin", issue.origin},
                                     {"key", issue.key},
                                     {"reason", issue.reason},
                                     {"suggestion", issue.suggestion.empty() ? Json() : Json(issue.suggestion)}}));
  }
  return Json(Json::Object{{"valid", issues.empty()}, {"issues", std::move(list)}});
}

void check_config(const Request& request, const CheckOptions& options, const std::string& device, bool json) {
  try {
    const RunConfig config = load_run_config(request.config, request.overrides, options);
    // Without file access the architecture of a model folder is unknown.
    if (options.files || config.model.path.empty() || !device.empty())
      with_origins(request.config, request.overrides, [&] {
        if (options.files) require_texts(config, run_model_config(config));
        require_startable(config, device.empty() ? std::nullopt : std::optional(parse_device(device)));
      });
  } catch (const ConfigError& error) {
    if (json) print(to_json(error.issues()).dump(2));
    throw;
  } catch (const Error& error) {
    if (json) print(to_json(std::vector<ConfigIssue>{{request.config, "", error.what(), ""}}).dump(2));
    throw;
  }
  print(json ? to_json(std::vector<ConfigIssue>{}).dump(2) : fmt::format("{}: valid", request.config));
}

void diff_configs(const std::string& before, const std::string& after, bool json) {
  const std::vector<ConfigChange> changes =
      config_diff(load_run_config(before, {}, kAnywhere), load_run_config(after, {}, kAnywhere));
  if (!json) {
    if (!changes.empty()) print(to_string(changes));
    return;
  }
  Json list = Json::array();
  for (const ConfigChange& change : changes) {
    const std::string_view policy = change.policy == ResumePolicy::free      ? "free"
                                    : change.policy == ResumePolicy::guarded ? "guarded"
                                                                             : "fixed";
    list.push_back(Json(
        Json::Object{{"key", change.key}, {"before", change.before}, {"after", change.after}, {"on_resume", policy}}));
  }
  print(list.dump(2));
}

void write_reference(const std::string& page, const Command& program) {
  if (page.empty()) {
    print(config_reference());
    return;
  }
  write_file_atomically(page, update_reference_page(read_file(page, kMaxPageBytes), program));
}

void add_reading_verbs(const Command& config) {
  const Command check = config.add_command("check", "Report all errors of a config");
  check.footer(
      "CONFIG [--section.key=value ...] is a file or embedded name with overrides.\nReports everything that `train` "
      "refuses before it reads its data; with --device also what that device cannot\nrun or hold. Plug-ins that the "
      "config names are not loaded; `quench --plugin FILE config check` loads one.\nExample: quench config check "
      "run.json --device cpu --training.steps=100");
  check.allow_other_words();
  auto device = std::make_shared<std::string>();
  check.add_option("--device", *device, "auto, cpu, cuda or cuda:N: check for a run there too");
  auto no_files = std::make_shared<bool>(false);
  auto json = std::make_shared<bool>(false);
  check.add_flag("--no-files", *no_files, "Do not look for data, model and checkpoint files");
  check.add_flag("--json", *json, "Print JSON");
  check.on_run([check, device, no_files, json] {
    check_config(read_request(check), {.data = true, .files = !*no_files, .plugins = false}, *device, *json);
  });

  const Command show = config.add_command("print", "Print the resolved config, every key with its value, as JSON");
  show.footer(
      "CONFIG [--section.key=value ...] is a file or embedded name with overrides.\nExample: quench config print "
      "shakespeare_char --training.dtype=bf16 > my.json");
  show.allow_other_words();
  show.add_flag("--json", "Accepted for uniformity: the output is JSON in any case");
  show.on_run([show] {
    const Request request = read_request(show);
    print(to_json(load_run_config(request.config, request.overrides, kAnywhere)).dump(2));
  });
}

}  // namespace

void add_config_verb(const Command& app) {
  const Command config = app.add_command("config", "List, copy, check and print configs");
  config.footer("Example: quench config cp shakespeare_char my.json");
  config.require_commands(1, 1);

  const Command ls = config.add_command("ls", "List the embedded configs");
  ls.footer("Example: quench config ls models --family gemma3");
  auto listed = std::make_shared<ListArguments>();
  ls.add_option("KIND", listed->kind, "models (for model.preset) or runs (for quench train); default: both")
      .type_name("TEXT");
  ls.add_flag("--json", listed->json, "Print JSON");
  ls.add_option("--family", listed->family,
                "Models whose name or model_type begins so, such as gemma-3, qwen3 or gpt_oss, and runs of them")
      .type_name("TEXT");
  ls.on_run([listed] { list_configs(*listed); });

  const Command cp = config.add_command("cp", "Copy an embedded config to a file");
  cp.footer("Example: quench config cp llama-3.2-1b models/mine.json --make-parents");
  auto copy = std::make_shared<CopyArguments>();
  cp.add_option("NAME", copy->name, "Name as `quench config ls` prints it").required().type_name(kConfigNameType);
  cp.add_option("DEST", copy->destination, "File or folder").required();
  cp.add_flag("-n,--no-clobber", copy->no_clobber, "Keep an existing file, without an error");
  cp.add_flag("--overwrite", copy->overwrite, "Replace a file, edited copies too");
  cp.add_flag("--make-parents", copy->make_parents, "Create missing parent folders");
  cp.on_run([copy] { copy_config(*copy); });

  add_reading_verbs(config);

  struct DiffArguments {
    std::string before, after;
    bool json = false;
  };
  const Command diff = config.add_command("diff", "Show the keys in which two configs differ");
  diff.footer("Example: quench config diff runs/a/config.json runs/b/config.json");
  auto compared = std::make_shared<DiffArguments>();
  diff.add_option("BEFORE", compared->before, "Config file or name").required().type_name(kConfigType);
  diff.add_option("AFTER", compared->after, "Config file or name").required().type_name(kConfigType);
  diff.add_flag("--json", compared->json, "Print JSON");
  diff.on_run([compared] { diff_configs(compared->before, compared->after, compared->json); });

  const Command schema = config.add_command("schema", "Print the JSON Schema of the config, for editors");
  schema.footer("Example: quench config schema > quench.schema.json");
  schema.add_flag("--json", "Accepted for uniformity: the output is JSON in any case");
  schema.on_run([] { print(config_schema().dump(2)); });

  const Command docs = config.add_command("docs", "Write the tables of docs/reference/config.md");
  docs.hide();  // developer command
  auto page = std::make_shared<std::string>();
  docs.add_option("PAGE", *page, "Page to update in place; without it, print the tables");
  docs.on_run([page, app] { write_reference(*page, app); });
}

}  // namespace quench
