#include "apps/inspect/inspect_model.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/json/json_member.h"
#include "core/safetensors/safetensors_folder.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "export/formats/gguf/model_config.h"
#include "export/formats/gguf/reader.h"
#include "export/formats/gguf/types.h"
#include "export/formats/stored_weights.h"
#include "export/table/open_stored_weights.h"
#include "train/config/adapter_words.h"
#include "train/model_folder/model_folder.h"
#include "train/model_folder/peft_config.h"
#include "train/model_folder/peft_folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxJsonBytes = std::uint64_t{16} << 20;

struct StoredEntry {
  std::string name, type;
  Shape shape;
  std::int64_t bytes = 0;
};

std::vector<StoredEntry> gguf_entries(const fs::path& file) {
  std::vector<StoredEntry> entries;
  for (const GgufEntry& entry : read_gguf_head(file).tensors)
    entries.push_back({entry.name, gguf_type_name(entry.type), entry.shape, static_cast<std::int64_t>(entry.bytes)});
  return entries;
}

// Stored tensors of a safetensors folder or a GGUF file (ModelSource::weights()).
std::vector<StoredEntry> stored_entries(const fs::path& weights) {
  if (is_gguf_path(weights)) return gguf_entries(weights);
  std::vector<StoredEntry> entries;
  const SafetensorsFolder folder(weights);
  for (const std::string& name : folder.names()) {
    const SafetensorsEntry& entry = *folder.find(name)->entry;
    entries.push_back({name, entry.dtype_name, entry.shape, static_cast<std::int64_t>(entry.nbytes())});
  }
  return entries;
}

std::vector<StoredEntry> adapter_entries(const fs::path& file) {
  std::vector<StoredEntry> entries;
  const SafetensorsReader reader(file);
  for (const SafetensorsEntry& entry : reader.header().entries)
    entries.push_back({entry.name, entry.dtype_name, entry.shape, static_cast<std::int64_t>(entry.nbytes())});
  return entries;
}

void add_tensors(Json& json, const std::vector<StoredEntry>& entries, bool list) {
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
  if (list) json.set("tensors", std::move(tensors));
}

void add_config(Json& json, const nn::ModelConfig& config) {
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

// Layer kind: "model.layers.*.mlp.up_proj" for "model.layers.3.mlp.up_proj.weight".
std::string kind_of(const std::string& weight) {
  std::string kind;
  for (std::size_t begin = 0; begin <= weight.size();) {
    const std::size_t end = std::min(weight.find('.', begin), weight.size());
    const std::string part = weight.substr(begin, end - begin);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    if (end < weight.size() || part != "weight") kind += (kind.empty() ? "" : ".") + (number ? "*" : part);
    begin = end + 1;
  }
  return kind;
}

std::string form_of(const PackedMatrix& packed) {
  return fmt::format("{}, {}", to_string(packed.codes().dtype()),
                     packed.group_size() < packed.columns() ? fmt::format("groups of {}", packed.group_size())
                                                            : std::string("one scale a row"));
}

// One line per quantized format with its layers; reads one weight per layer kind.
std::vector<std::string> packed_forms(const StoredWeights& weights) {
  std::map<std::string, std::pair<std::string, std::size_t>> forms;  // by layer kind: format, count
  for (const std::string& name : weights.names()) {
    if (!weights.find(name)->packed) continue;
    auto& [form, count] = forms[kind_of(name)];
    if (count++ == 0) form = form_of(weights.read_packed(name)) + (weights.inputs(name) ? ", inputs quantized" : "");
  }
  std::map<std::string, std::pair<std::size_t, std::set<std::string>>> kinds;  // by format
  for (const auto& [kind, of_kind] : forms) {
    kinds[of_kind.first].first += of_kind.second;
    kinds[of_kind.first].second.insert(kind);
  }
  std::vector<std::string> lines;
  for (const auto& [form, layers] : kinds)
    lines.push_back(fmt::format("{}: {} weights, {}", form, layers.first, fmt::join(layers.second, ", ")));
  return lines;
}

std::string gguf_types(const std::vector<StoredEntry>& entries) {
  std::map<std::string, int> counts;
  for (const StoredEntry& entry : entries) ++counts[entry.type];
  std::string text = "gguf:";
  for (const auto& [type, count] : counts)
    text += fmt::format("{} {} tensors {}", text.back() == ':' ? "" : ",", count, type);
  return text;
}

// Quantization of the stored weights; "none" if unquantized.
Json quantization_of(const ModelSource& source, const Json& config) {
  const Json* section = config.find(kQuantizationConfig);
  if (section == nullptr || section->is_null()) {
    const bool gguf = is_gguf_path(source.weights());
    return gguf ? Json(gguf_types(gguf_entries(source.weights()))) : Json("none");
  }
  std::string method = find_text(*section, {"quant_method"});
  if (const std::string format = find_text(*section, {"format"}); !format.empty()) method += ", " + format;
  Json lines = Json::array();
  lines.push_back(method);
  if (source.weights().empty()) return lines;
  try {
    for (const std::string& line : packed_forms(*open_stored_weights(source.path(), config))) lines.push_back(line);
  } catch (const Error& error) {
    lines.push_back(fmt::format("not readable here: {}", error.what()));
  }
  return lines;
}

// Tokenizer and chat template of a folder (ModelSource::tokenizer()), or the error of reading them.
void add_tokenizer(Json& json, const fs::path& folder) {
  if (folder.empty()) {
    json.set("tokenizer", "none");
    return;
  }
  try {
    const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(folder);
    const auto id = [](std::optional<std::int32_t> value) { return value ? std::to_string(*value) : "none"; };
    json.set("tokenizer", fmt::format("{} tokens, begin {}, end {}, padding {}", tokenizer->vocab_size(),
                                      id(tokenizer->bos_id()), id(tokenizer->eos_id()), id(tokenizer->pad_id())));
    const auto& chat = tokenizer->chat_template();
    json.set(
        "chat_template",
        chat ? fmt::format("{}, {} bytes", fs::path(chat->source).filename().string(), chat->text.size()) : "none");
  } catch (const Error& error) {
    json.set("tokenizer", fmt::format("not readable: {}", error.what()));
  }
}

void add_files(Json& json, const fs::path& folder) {
  Json files = Json::array();
  std::map<std::string, std::int64_t> sizes;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file()) sizes[entry.path().filename().string()] = static_cast<std::int64_t>(entry.file_size());
  for (const auto& [name, size] : sizes) files.push_back(Json::Object{{"name", name}, {"bytes", size}});
  json.set("files", std::move(files));
}

}  // namespace

Json shape_json(const Shape& shape) {
  Json dims = Json::array();
  for (const std::int64_t d : shape) dims.push_back(d);
  return dims;
}

Json inspect_model(const ModelSource& source, bool tensors) {
  const bool weights = !source.weights().empty();
  Json json = Json::object();
  json.set("kind", weights ? "model folder" : "model folder without weights");
  if (!source.config_file().empty()) {
    const nn::ModelConfig config = read_model_config(source);
    add_config(json, config);
    json.set("quantization", quantization_of(source, config.source));
  }
  add_tokenizer(json, source.tokenizer());
  if (weights) add_tensors(json, stored_entries(source.weights()), tensors);
  add_files(json, source.path());
  return json;
}

Json inspect_gguf(const fs::path& file, bool tensors) {
  GgufHead head = read_gguf_head(file);
  Json json = Json::object();
  json.set("kind", "GGUF file");
  const auto text = [&](const char* key) {
    const auto found = head.metadata.find(key);
    return found != head.metadata.end() && found->second.is_string() ? found->second.as_string() : std::string();
  };
  if (const std::string name = text("general.name"); !name.empty()) json.set("name", name);
  try {
    add_config(json, nn::parse_model_config(gguf_model_config(file), file.string()));
  } catch (const Error& error) {
    json.set("architecture", text("general.architecture"));
    json.set("note", fmt::format("cannot be computed here: {}", error.what()));
  }
  const std::vector<StoredEntry> entries = gguf_entries(file);
  json.set("quantization", gguf_types(entries));
  const auto tokens = head.metadata.find("tokenizer.ggml.tokens");
  json.set("tokenizer",
           tokens != head.metadata.end() && tokens->second.is_array()
               ? fmt::format("{}, {} tokens", text("tokenizer.ggml.model"), tokens->second.as_array().size())
               : "none");
  const std::string chat = text("tokenizer.chat_template");
  json.set("chat_template", chat.empty() ? "none" : fmt::format("{} bytes", chat.size()));
  add_tensors(json, entries, tensors);
  return json;
}

Json inspect_adapter(const fs::path& folder, bool tensors) {
  const fs::path file = folder / kAdapterConfigName, weights = folder / kAdapterWeightsName;
  const Json document = Json::parse_file(file, {.max_bytes = kMaxJsonBytes});
  Json json = Json::object();
  json.set("kind", "PEFT adapter folder");
  const auto shown = [&](const char* key) {
    const Json* value = find_member(document, {key});
    return value == nullptr ? Json("not named") : *value;
  };
  json.set("base_model", shown("base_model_name_or_path"));
  try {
    const PeftConfig config = parse_peft_config(document, file.string());
    std::string words = adapter_words("dense", std::to_string(config.rank), config.dora);
    words += fmt::format(", alpha {}, dropout {}", config.alpha, config.dropout);
    if (config.rslora) words += ", rslora";
    if (!config.rank_pattern.empty()) words += fmt::format(", {} patterns of other ranks", config.rank_pattern.size());
    json.set("adapters", words);
  } catch (const Error& error) {
    json.set("adapters", fmt::format("{}, cannot be used here: {}", shown("peft_type").dump(), error.what()));
  }
  json.set("target_modules", shown("target_modules"));
  if (const Json saved = shown("modules_to_save"); saved.is_array()) json.set("modules_to_save", saved);
  if (fs::exists(weights)) {
    const std::vector<StoredEntry> entries = adapter_entries(weights);
    std::int64_t parameters = 0, layers = 0;
    for (const StoredEntry& entry : entries) {
      parameters += entry.shape.numel();
      if (entry.name.find(".lora_A.") != std::string::npos) ++layers;
    }
    json.set("adapted_layers", layers);
    json.set("parameters", parameters);
    add_tensors(json, entries, tensors);
  }
  add_files(json, folder);
  return json;
}

}  // namespace quench
