// quench inspect: contents of a model folder or training checkpoint.

#include <cstdio>

#include "apps/common.h"
#include "apps/inspect/inspect_model.h"
#include "apps/inspect/inspect_tokens.h"
#include "apps/verbs.h"
#include "core/json/json_member.h"
#include "core/system/missing_path.h"
#include "export/formats/gguf/reader.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/config/adapter_words.h"
#include "train/config/run_plugins.h"
#include "train/model_source/model_source.h"
#include "train/report/run_summary.h"
#include "train/session/adapter_setup.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

struct InspectOptions {
  std::string path;
  bool tensors = false;
  bool verify = false;
  bool json = false;
};

void print_tensors(const Json& json) {
  const Json* tensors = json.find("tensors");
  if (tensors == nullptr) return;
  for (const Json& t : tensors->as_array())
    std::printf("  %-72s %-8s %s\n", t.at("name").as_string().c_str(), t.at("dtype").as_string().c_str(),
                t.at("shape").dump().c_str());
}

// "nf4 base + lora r16", from a run's config; not stored in the checkpoint.
std::string adapters_of(const Json& config) {
  const auto word = [&](const char* key) {
    const Json* value = find_member(config, {"lora", key});
    return value == nullptr ? std::string() : value->is_string() ? value->as_string() : value->dump();
  };
  return adapter_words(word("base"), word("rank"), word("dora") == "true") +
         "; the model under them is not stored here";
}

Json inspect_checkpoint(const InspectOptions& o) {
  const CheckpointReader reader(o.path, Verify::none);
  const Manifest& manifest = reader.manifest();
  Json json = Json::object();
  json.set("kind", "training checkpoint");
  json.set("step", manifest.state.step);
  json.set("tokens_seen", manifest.state.tokens_seen);
  json.set("samples", manifest.state.samples);
  json.set("tool_version", manifest.state.tool_version);
  json.set("world_size", static_cast<std::int64_t>(manifest.world_size));
  if (holds_adapters_alone(manifest.state)) json.set("adapters", adapters_of(manifest.state.config));
  if (const Json* plugins = stored_plugins(manifest.state)) json.set("plugins", *plugins);
  std::int64_t bytes = 0;
  for (const DataFileRecord& file : manifest.files) bytes += static_cast<std::int64_t>(file.size);
  json.set("files", static_cast<std::int64_t>(manifest.files.size()));
  json.set("bytes", bytes);
  json.set("tensor_count", static_cast<std::int64_t>(manifest.tensors.size()));
  if (o.tensors) {
    Json tensors = Json::array();
    for (const TensorRecord& record : manifest.tensors) {
      Json t = Json::object();
      t.set("name", record.name);
      t.set("dtype", to_string(record.dtype));
      t.set("shape", shape_json(record.shape));
      tensors.push_back(std::move(t));
    }
    json.set("tensors", std::move(tensors));
  }
  return json;
}

// List of a folder's checkpoints.
Json inspect_checkpoints(const fs::path& folder) {
  Json json = Json::object();
  json.set("kind", "checkpoint folder");
  Json list = Json::array();
  for (const CheckpointInfo& info : list_checkpoints(folder).checkpoints) {
    Json item = Json::object();
    item.set("step", info.step);
    item.set("path", info.path.string());
    item.set("valid", info.valid);
    if (!info.fault.empty()) item.set("fault", info.fault);
    if (info.pinned) item.set("pinned", true);
    if (info.superseded) item.set("superseded", true);
    list.push_back(std::move(item));
  }
  json.set("checkpoints", std::move(list));
  return json;
}

void verify(const fs::path& folder) {
  const VerifyReport report = verify_checkpoint(folder);
  if (report.ok()) {
    std::fprintf(stderr, "verified: %zu tensors, %llu bytes, all hashes match\n", report.tensors,
                 static_cast<unsigned long long>(report.bytes));
    return;
  }
  std::string message = fmt::format("{} is damaged:", folder.string());
  for (const std::string& fault : report.faults) message += "\n  " + fault;
  QUENCH_FAIL(ErrorCode::corrupt, "{}", message);
}

Json inspect(const ModelSource& source, const InspectOptions& o) {
  switch (source.kind()) {
    case ModelSourceKind::model_folder: return inspect_model(source, o.tensors);
    case ModelSourceKind::gguf_file: return inspect_gguf(source.path(), o.tensors);
    case ModelSourceKind::adapter_folder: return inspect_adapter(source.path(), o.tensors);
    case ModelSourceKind::checkpoint: return inspect_checkpoint(o);
    case ModelSourceKind::checkpoint_folder: return inspect_checkpoints(source.checkpoints());
    case ModelSourceKind::run_folder: return run_summary(source.path());
  }
  return {};
}

std::string size_text(const Json& bytes) {
  const double size = bytes.as_double();
  if (size >= 1 << 30) return fmt::format("{:.2f} GiB", size / (1 << 30));
  return size >= 1 << 20 ? fmt::format("{:.1f} MiB", size / (1 << 20)) : fmt::format("{:.1f} KiB", size / 1024);
}

// True for members printed as separate lines after the others.
bool is_list(const std::string& key, const Json& value) {
  return value.is_array() && (key == "tensors" || key == "checkpoints" || key == "files");
}

std::string shown(const std::string& key, const Json& value) {
  if (value.is_string()) return value.as_string();
  if (value.is_integer() && (key == "bytes" || key.ends_with("_bytes"))) return size_text(value);
  if (value.is_array()) {
    std::string text;
    for (const Json& item : value.as_array()) text += (text.empty() ? "" : "\n                 ") + shown("", item);
    return text.empty() ? "none" : text;
  }
  if (!value.is_object()) return value.dump();
  std::string text;
  for (const auto& [name, inner] : value.as_object())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, shown(name, inner));
  return text;
}

void print_checkpoints(const Json& json) {
  const Json* list = json.find("checkpoints");
  if (list == nullptr) return;
  std::printf("checkpoints      %s\n", list->as_array().empty() ? "none" : "");
  for (const Json& item : list->as_array()) {
    std::string state = item.at("valid").as_bool() ? "valid" : item.at("fault").as_string();
    for (const char* mark : {"pinned", "superseded"})
      if (item.find(mark) != nullptr) state += fmt::format(", {}", mark);
    const Json* bytes = item.find("bytes");
    std::printf("  step %-10s %-10s %s  %s\n", item.at("step").dump().c_str(),
                bytes != nullptr ? size_text(*bytes).c_str() : "", item.at("path").as_string().c_str(), state.c_str());
  }
}

void print_files(const Json& json) {
  const Json* files = json.find("files");
  if (files == nullptr || !files->is_array()) return;
  std::printf("files\n");
  for (const Json& file : files->as_array())
    std::printf("  %-40s %s\n", file.at("name").as_string().c_str(), size_text(file.at("bytes")).c_str());
}

void run(const InspectOptions& o) {
  const fs::path path(o.path);
  QUENCH_CHECK_AS(ErrorCode::bad_config, fs::exists(path), "{} does not exist{}", o.path, missing_path_text(path));
  const bool tokens = !is_gguf_path(path) && is_token_data(path);
  const std::optional<ModelSource> source = tokens ? std::nullopt : ModelSource::find(path);
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, tokens || source,
      "{} cannot be inspected; expected a model folder (config.json, safetensors or GGUF), a GGUF file, a "
      "PEFT adapter folder, a run folder, a folder of checkpoints (step-N), one checkpoint, or token shards",
      o.path);
  if (o.verify && !tokens) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, source->kind() == ModelSourceKind::checkpoint,
                    "{} has no {}; --verify takes one checkpoint (step-N), or token shards", o.path,
                    Manifest::kFileName);
    verify(path);
  }
  const Json json = tokens ? inspect_tokens(path, o.verify) : inspect(*source, o);
  if (o.json) return print_json(json);
  for (const auto& [key, value] : json.as_object())
    if (!is_list(key, value)) std::printf("%-16s %s\n", key.c_str(), shown(key, value).c_str());
  print_checkpoints(json);
  print_files(json);
  print_tensors(json);
}

}  // namespace

void add_inspect_verb(const Command& app) {
  auto o = std::make_shared<InspectOptions>();
  const Command verb =
      app.add_command("inspect", "Describe a model, an adapter, a checkpoint, a run folder or token shards");
  verb.footer("Example: quench inspect runs/demo/checkpoints/step-200 --verify");
  verb.add_option(
          "path", o->path,
          "Model or PEFT adapter folder, GGUF file, checkpoint (step-N), checkpoint folder, run folder, token file "
          "or folder of shards")
      .takes_hub_name()
      .required();
  verb.add_flag("--tensors", o->tensors, "List every tensor");
  verb.add_flag("--verify", o->verify, "Compare every stored byte of a checkpoint, or of token shards, with its hash");
  verb.add_flag("--json", o->json, "Print the result as JSON");
  verb.on_run([o] { run(*o); });
}

}  // namespace quench
