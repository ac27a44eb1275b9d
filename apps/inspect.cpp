// quench inspect: what a model folder or a training checkpoint holds.

#include <cstdio>
#include <map>

#include "apps/common.h"
#include "apps/verbs.h"
#include "core/safetensors_folder.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/hf/model_folder.h"

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

Json inspect_model(const InspectOptions& o) {
  const SafetensorsFolder weights(o.path);
  Json json = Json::object();
  json.set("kind", "model folder");
  if (fs::exists(fs::path(o.path) / "config.json")) {
    const nn::ModelConfig config = read_model_config(o.path);
    json.set("architecture", config.architecture);
    json.set("parameters", config.parameter_count());
    json.set("layers", config.num_hidden_layers);
    json.set("hidden_size", config.hidden_size);
    json.set("vocab_size", config.vocab_size);
  }
  std::map<std::string, std::int64_t> bytes;
  Json tensors = Json::array();
  for (const std::string& name : weights.names()) {
    const SafetensorsEntry& entry = *weights.find(name)->entry;
    bytes[entry.dtype_name] += static_cast<std::int64_t>(entry.end - entry.begin);
    Json t = Json::object();
    t.set("name", name);
    t.set("dtype", entry.dtype_name);
    t.set("shape", shape_json(entry.shape));
    tensors.push_back(std::move(t));
  }
  json.set("tensor_count", static_cast<std::int64_t>(weights.names().size()));
  Json by_dtype = Json::object();
  for (const auto& [dtype, count] : bytes) by_dtype.set(dtype, count);
  json.set("bytes", std::move(by_dtype));
  if (o.tensors) json.set("tensors", std::move(tensors));
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
Json inspect_run(const fs::path& folder) {
  Json json = Json::object();
  json.set("kind", "checkpoint folder");
  Json list = Json::array();
  for (const CheckpointInfo& info : list_checkpoints(folder).checkpoints) {
    Json item = Json::object();
    item.set("step", info.step);
    item.set("path", info.path.string());
    item.set("valid", info.valid);
    if (!info.fault.empty()) item.set("fault", info.fault);
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

void run(const InspectOptions& o) {
  const fs::path path(o.path);
  QUENCH_CHECK_AS(ErrorCode::bad_config, fs::is_directory(path), "{} is not a folder", o.path);
  const bool checkpoint = fs::exists(path / Manifest::kFileName);
  if (o.verify) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, checkpoint, "{} has no {}; --verify takes one checkpoint (step-N)", o.path,
                    Manifest::kFileName);
    verify(path);
  }
  const bool model = fs::exists(path / "model.safetensors") || fs::exists(path / "model.safetensors.index.json");
  const bool parent = fs::is_directory(path / "checkpoints");
  const Json json = checkpoint ? inspect_checkpoint(o)
                    : model    ? inspect_model(o)
                               : inspect_run(parent ? path / "checkpoints" : path);
  if (o.json) return print_json(json);
  for (const auto& [key, value] : json.as_object())
    if (key != "tensors" && key != "checkpoints")
      std::printf("%-14s %s\n", key.c_str(), value.is_string() ? value.as_string().c_str() : value.dump().c_str());
  if (const Json* list = json.find("checkpoints")) {
    for (const Json& item : list->as_array())
      std::printf("  step %-10s %s  %s\n", item.at("step").dump().c_str(), item.at("path").as_string().c_str(),
                  item.at("valid").as_bool() ? "valid" : item.at("fault").as_string().c_str());
  }
  print_tensors(json);
}

}  // namespace

void add_inspect_verb(CLI::App& app) {
  auto o = std::make_shared<InspectOptions>();
  CLI::App* verb = app.add_subcommand("inspect", "What a model folder, a checkpoint or a run folder holds");
  verb->footer("Example: quench inspect runs/demo/checkpoints/step-200 --verify");
  verb->add_option("path", o->path, "Model folder, checkpoint (step-N), checkpoint folder or run folder")->required();
  verb->add_flag("--tensors", o->tensors, "List every tensor");
  verb->add_flag("--verify", o->verify, "Compare every stored byte of a checkpoint with its hash");
  verb->add_flag("--json", o->json, "Print the result as JSON");
  verb->callback([o] { run(*o); });
}

}  // namespace quench
