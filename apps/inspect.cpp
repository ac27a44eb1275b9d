// quench inspect: what a model folder or a training checkpoint holds.

#include <cstdio>
#include <map>

#include "apps/common.h"
#include "apps/inspect_tokens.h"
#include "apps/verbs.h"
#include "core/safetensors/safetensors_folder.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "export/gguf/reader.h"
#include "export/gguf/types.h"
#include "export/stored_weights.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/model_folder/model_folder.h"
#include "train/report/run_summary.h"
#include "train/run_folder/run_folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

struct InspectOptions {
  std::string path;
  bool tensors = false;
  bool verify = false;
  bool json = false;
};

Json shape_json(const Shape& shape) {
  Json dims = Json::array();
  for (const std::int64_t d : shape) dims.push_back(d);
  return dims;
}

void print_tensors(const Json& json) {
  const Json* tensors = json.find("tensors");
  if (tensors == nullptr) return;
  for (const Json& t : tensors->as_array())
    std::printf("  %-72s %-8s %s\n", t.at("name").as_string().c_str(), t.at("dtype").as_string().c_str(),
                t.at("shape").dump().c_str());
}

struct StoredEntry {
  std::string name, type;
  Shape shape;
  std::int64_t bytes = 0;
};

// Of the folder's safetensors, or of its GGUF file, as the files have them.
std::vector<StoredEntry> stored_entries(const fs::path& folder) {
  std::vector<StoredEntry> entries;
  if (const fs::path gguf = stored_gguf_file(folder); !gguf.empty()) {
    for (const GgufEntry& entry : read_gguf_head(gguf).tensors)
      entries.push_back({entry.name, gguf_type_name(entry.type), entry.shape, static_cast<std::int64_t>(entry.bytes)});
    return entries;
  }
  const SafetensorsFolder weights(folder);
  for (const std::string& name : weights.names()) {
    const SafetensorsEntry& entry = *weights.find(name)->entry;
    entries.push_back({name, entry.dtype_name, entry.shape, static_cast<std::int64_t>(entry.end - entry.begin)});
  }
  return entries;
}

void add_weights(Json& json, const InspectOptions& o) {
  const std::vector<StoredEntry> entries = stored_entries(o.path);
  std::map<std::string, std::int64_t> bytes;
  Json tensors = Json::array();
  for (const StoredEntry& entry : entries) {
    bytes[entry.type] += entry.bytes;
    Json t = Json::object();
    t.set("name", entry.name);
    t.set("dtype", entry.type);
    t.set("shape", shape_json(entry.shape));
    tensors.push_back(std::move(t));
  }
  json.set("tensor_count", static_cast<std::int64_t>(entries.size()));
  Json by_dtype = Json::object();
  for (const auto& [dtype, count] : bytes) by_dtype.set(dtype, count);
  json.set("bytes", std::move(by_dtype));
  if (o.tensors) json.set("tensors", std::move(tensors));
}

void add_config(Json& json, const fs::path& folder) {
  const nn::ModelConfig config = read_model_config(folder);
  json.set("architecture", config.architecture);
  json.set("parameters", config.parameter_count());
  if (config.experts.count > 0) {
    json.set("active_parameters", config.active_parameter_count());
    json.set("experts", config.experts.count);
    json.set("experts_per_token", config.experts.per_token);
  }
  json.set("dtype", to_string(config.dtype));
  json.set("layers", config.num_hidden_layers);
  json.set("hidden_size", config.hidden_size);
  json.set("vocab_size", config.vocab_size);
  json.set("max_positions", config.max_position_embeddings);
  json.set("token_ids", to_string(token_ids_of(config)));
}

// The tokenizer of a model folder in a few words, or why it cannot be read.
std::string tokenizer_of(const fs::path& folder) {
  if (!holds_tokenizer(folder)) return "none";
  try {
    const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(folder);
    const auto id = [](std::optional<std::int32_t> value) { return value ? std::to_string(*value) : "none"; };
    return fmt::format("{} tokens, begin {}, end {}, padding {}", tokenizer->vocab_size(), id(tokenizer->bos_id()),
                       id(tokenizer->eos_id()), id(tokenizer->pad_id()));
  } catch (const Error& error) {
    return fmt::format("not readable: {}", error.what());
  }
}

bool holds_weights(const fs::path& folder) {
  return fs::exists(folder / "model.safetensors") || fs::exists(folder / "model.safetensors.index.json") ||
         !stored_gguf_file(folder).empty();
}

Json inspect_model(const InspectOptions& o) {
  const fs::path folder = o.path;
  Json json = Json::object();
  json.set("kind", holds_weights(folder) ? "model folder" : "model folder without weights");
  if (!stored_config_file(folder).empty()) add_config(json, folder);
  json.set("tokenizer", tokenizer_of(folder));
  if (holds_weights(folder)) add_weights(json, o);
  Json files = Json::array();
  std::map<std::string, std::int64_t> sizes;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file()) sizes[entry.path().filename().string()] = static_cast<std::int64_t>(entry.file_size());
  for (const auto& [name, size] : sizes) files.push_back(Json::Object{{"name", name}, {"bytes", size}});
  json.set("files", std::move(files));
  return json;
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

// Lists the checkpoints of a folder of them.
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

Json inspect(const InspectOptions& o, bool checkpoint) {
  const fs::path path = o.path;
  if (checkpoint) return inspect_checkpoint(o);
  if (is_run_folder(path)) return run_summary(path);
  if (holds_weights(path) || fs::exists(path / "config.json")) return inspect_model(o);
  const fs::path checkpoints = checkpoint_folder_of(path);
  Json json = inspect_checkpoints(fs::is_directory(checkpoints) ? checkpoints : path);
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, !json.at("checkpoints").as_array().empty(),
      "{} is none of what can be inspected: a model folder (config.json, safetensors or GGUF), a run folder, a "
      "folder of checkpoints (step-N), or one checkpoint",
      o.path);
  return json;
}

std::string size_text(const Json& bytes) {
  const double size = bytes.as_double();
  if (size >= 1 << 30) return fmt::format("{:.2f} GiB", size / (1 << 30));
  return size >= 1 << 20 ? fmt::format("{:.1f} MiB", size / (1 << 20)) : fmt::format("{:.1f} KiB", size / 1024);
}

// Members that get lines of their own behind the others.
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
  const bool tokens = is_token_data(path);
  QUENCH_CHECK_AS(ErrorCode::bad_config, tokens || fs::is_directory(path), "{} is neither a folder nor a file", o.path);
  const bool checkpoint = !tokens && fs::exists(path / Manifest::kFileName);
  if (o.verify && !tokens) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, checkpoint,
                    "{} has no {}; --verify takes one checkpoint (step-N), or token shards", o.path,
                    Manifest::kFileName);
    verify(path);
  }
  const Json json = tokens ? inspect_tokens(path, o.verify) : inspect(o, checkpoint);
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
      app.add_command("inspect", "What a model folder, a checkpoint, a run folder or token shards hold");
  verb.footer("Example: quench inspect runs/demo/checkpoints/step-200 --verify");
  verb.add_option("path", o->path,
                  "Model folder, checkpoint (step-N), checkpoint folder, run folder, token file or folder of shards")
      .required();
  verb.add_flag("--tensors", o->tensors, "List every tensor");
  verb.add_flag("--verify", o->verify, "Compare every stored byte of a checkpoint, or of token shards, with its hash");
  verb.add_flag("--json", o->json, "Print the result as JSON");
  verb.on_run([o] { run(*o); });
}

}  // namespace quench
