#include "train/model/quantize_files.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>

#include "core/json/json_member.h"
#include "core/ops/elementwise.h"
#include "core/ops/quantize/quantize.h"
#include "core/safetensors/safetensors_folder.h"
#include "core/system/file.h"
#include "core/system/output_folder.h"
#include "export/formats/compressed_tensors/config.h"
#include "export/formats/compressed_tensors/writer.h"
#include "export/formats/export_mark.h"
#include "export/formats/head_as_table.h"
#include "export/formats/safetensors_items.h"
#include "export/formats/stored_weights.h"
#include "export/methods/rtn.h"
#include "recipes/convert.h"
#include "train/metrics/progress_line.h"
#include "train/model/save_plan.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeightEnd = ".weight", kFileConfig = "config.json";
constexpr std::string_view kOnlyFormat = "compressed-tensors";
constexpr std::uint64_t kHeldBytes = std::uint64_t{256} << 20;   // rounded values of a file that is not written yet
constexpr std::uint64_t kCopiedBytes = std::uint64_t{32} << 20;  // at a time
constexpr std::size_t kMostConfigBytes = std::size_t{16} << 20;

// Null: no scheme.
void refuse_calibrated(const Scheme* scheme) {
  if (scheme == nullptr || !scheme->inputs || !needs_input_scale(*scheme->inputs)) return;
  QUENCH_FAIL(ErrorCode::bad_config,
              "scheme {} needs calibration data, which --model-free cannot run a model on; {} does not", scheme->name,
              scheme->weights.scale == ScaleForm::e4m3_two_level ? "nvfp4_weight_only" : "float8_dynamic");
}

void refuse_members_of_models(const SavePlan& plan) {
  const SaveTarget& target = plan.target;
  const QuantizationSection& section = target.quantization;
  const bool rtn = section.method == quantizers().front().name;
  for (const auto& [member, given] :
       {std::pair("format", target.format != kOnlyFormat), std::pair("dtype", target.dtype != "auto"),
        std::pair("sparsity", !target.sparsity.empty()), std::pair("rotate", target.rotate),
        std::pair("plan", !section.plan.empty()), std::pair("kv_cache", !target.kv_cache.empty()),
        std::pair("tokenizer", !target.tokenizer.empty()), std::pair("perplexity", !target.perplexity.empty()),
        std::pair("method", !rtn), std::pair("target_bits", target.target_bits.has_value()),
        std::pair("target_size", !target.target_size.empty()), std::pair("embeddings", !section.embeddings.empty()),
        std::pair("calibration", !section.calibration.empty()), std::pair("allow_requantize", target.allow_requantize)})
    QUENCH_CHECK_AS(ErrorCode::bad_config, !given,
                    "{} is not for --model-free, which rounds (rtn) the files' values to format {}", plan.key(member),
                    kOnlyFormat);
  QUENCH_CHECK_AS(ErrorCode::bad_config, plan.rules.has_value(), "{} is missing: --model-free quantizes",
                  plan.key("scheme"));
  for (const auto& rule : plan.rules->rules) refuse_calibrated(rule.second);
}

bool ends_in(std::string_view layer, std::initializer_list<std::string_view> names) {
  const std::string_view last = layer.substr(layer.rfind('.') + 1);
  return std::ranges::find(names, last) != names.end();
}

// Table of tokens or positions, or the head.
bool is_table(std::string_view layer, const Shape& shape, std::int64_t vocabulary) {
  return shape[0] == vocabulary || layer.substr(layer.rfind('.') + 1).find("embed") != std::string_view::npos ||
         ends_in(layer, {"lm_head", "wte", "wpe"});
}

bool is_router(std::string_view layer) {
  return ends_in(layer, {"gate", "router", "shared_expert_gate"});
}

// Scheme of every weight to be rounded; counts the others.
class Chosen {
 public:
  Chosen(const SafetensorsFolder& files, const Json& config, const QuantizationRules& rules) : rules_(rules) {
    const Json* size = find_member(config, {"vocab_size"});
    if (size == nullptr) size = find_member(config, {"text_config", "vocab_size"});
    const std::int64_t vocabulary = size != nullptr && size->is_integer() ? size->as_int() : -1;
    bool has_table = false;
    for (const std::string& name : files.names()) {
      const SafetensorsEntry& entry = *files.at(name).entry;
      if (entry.shape.rank() != 2 || !name.ends_with(kWeightEnd)) continue;
      const std::string layer = name.substr(0, name.size() - kWeightEnd.size());
      const bool table = is_table(layer, entry.shape, vocabulary);
      has_table = has_table || table;
      const Scheme* scheme = table || is_router(layer) ? nullptr : scheme_of(layer);
      if (scheme != nullptr && entry.dtype != DType::f32 && entry.dtype != DType::bf16 && entry.dtype != DType::f16) {
        unfit_.emplace_back(layer, fmt::format("its dtype is {}", entry.dtype_name));
        scheme = nullptr;
      }
      std::string problem;
      if (scheme != nullptr) problem = shape_problem(scheme->weights, entry.shape[0], entry.shape[1], scheme->inputs);
      if (!problem.empty()) unfit_.emplace_back(layer, problem);
      if (scheme != nullptr && problem.empty())
        schemes_[name] = scheme;
      else
        ignored_.push_back(layer);
    }
    const std::string source = (files.path() / kFileConfig).string();
    const Json* tied = find_member(config, {"tie_word_embeddings"});
    if (tied == nullptr) tied = find_member(config, {"text_config", "tie_word_embeddings"});
    QUENCH_CHECK_AS(
        ErrorCode::unsupported, has_table || tied == nullptr || *tied != Json(true),
        "{}: tie_word_embeddings is true, but no tensor is an embedding by its name or has vocab_size rows: "
        "which tensor the head shares is not known, and --model-free would round it",
        source);
    // Readers look for quantized values of a tied head, which has no tensor.
    if (tied != nullptr && *tied == Json(true) && !files.find(kHeadWeight)) ignored_.emplace_back(nn::kHeadName);
    for (std::size_t i = 0; i < rules.rules.size(); ++i)
      QUENCH_CHECK_AS(ErrorCode::bad_config, used_.contains(rules.rules[i].first),
                      "the quantization rule for '{}' matches no linear layer", rules.rules[i].first);
    for (const std::string& pattern : rules.exclude)
      QUENCH_CHECK_AS(ErrorCode::bad_config, used_.contains(pattern) || pattern == nn::kHeadName,
                      "the exclusion '{}' matches no linear layer", pattern);
    QUENCH_CHECK_AS(ErrorCode::bad_config, !schemes_.empty(), "{}: no matrix *.weight can be quantized{}", source,
                    unfit_.empty() ? "" : ": " + unfit_.front().second);
  }

  [[nodiscard]] const Scheme* of(const std::string& name) const {
    const auto found = schemes_.find(name);
    return found == schemes_.end() ? nullptr : found->second;
  }
  [[nodiscard]] const std::map<std::string, const Scheme*>& all() const { return schemes_; }
  [[nodiscard]] const std::vector<std::string>& ignored() const { return ignored_; }
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& unfit() const { return unfit_; }

 private:
  // Exclusions take precedence over rules, but for one that names the layer in full.
  const Scheme* scheme_of(const std::string& layer) {
    const bool named = std::ranges::any_of(rules_.rules, [&](const auto& rule) { return rule.first == layer; });
    for (const std::string& pattern : rules_.exclude)
      if (!named && recipes::glob_matches(pattern, layer)) {
        used_.insert(pattern);
        return nullptr;
      }
    for (const auto& [pattern, scheme] : rules_.rules)
      if (recipes::glob_matches(pattern, layer)) {
        used_.insert(pattern);
        return scheme;
      }
    return rules_.scheme;
  }

  const QuantizationRules& rules_;
  std::map<std::string, const Scheme*> schemes_;
  std::vector<std::string> ignored_;
  std::vector<std::pair<std::string, std::string>> unfit_;
  std::set<std::string> used_;
};

// In f32 or bf16, as RTN takes it.
Tensor read_matrix(const SafetensorsFolder::Location& stored) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor values = Tensor::empty(stored.entry->shape, *stored.entry->dtype);
  stored.read({static_cast<std::byte*>(values.raw_data()), values.nbytes()});
  if (values.dtype() != DType::f16) return values;
  const Tensor wide = Tensor::empty(values.shape(), DType::f32);
  cast({values, wide});
  return wide;
}

// Layers that engines run as one have one global scale (NVFP4).
std::string fused_key(std::string name) {
  for (const auto& [part, whole] :
       {std::pair(".q_proj.", ".qkv."), std::pair(".k_proj.", ".qkv."), std::pair(".v_proj.", ".qkv."),
        std::pair(".gate_proj.", ".gate_up."), std::pair(".up_proj.", ".gate_up.")})
    if (const std::size_t at = name.find(part); at != std::string::npos)
      return name.replace(at, std::string_view(part).size(), whole);
  return name;
}

// Files "model-00001.safetensors" ..., renamed when their number is known.
class ShardWriter {
 public:
  ShardWriter(fs::path folder, std::uint64_t most) : folder_(std::move(folder)), most_(most) {}

  void copy(const SafetensorsFolder::Location& stored) {
    const std::uint64_t bytes = stored.entry->nbytes();
    make_room(bytes);
    pending_.push_back({.name = stored.entry->name, .dtype = *stored.entry->dtype, .shape = stored.entry->shape});
    sources_.push_back(stored);
    add(bytes, 0);
  }

  void add_layer(const ModelTensor& tensor, CompressedForm form) {
    auto items = std::make_unique<SafetensorsItems>();
    add_compressed_layer(*items, tensor, form);
    std::uint64_t bytes = 0;
    for (SafetensorsItem& item : items->take()) {
      if (item.produce) {
        held_.push_back(item.produce());
        item.produce = {};
        item.data = held_.back();
      }
      bytes += item.data.size();
      pending_.push_back(std::move(item));
      sources_.push_back(std::nullopt);
    }
    items_.push_back(std::move(items));
    add(bytes, bytes);
    if (resident_ > kHeldBytes) flush();
  }

  // Writes the rest and the index; returns the bytes of the files.
  std::uint64_t finish() {
    flush();
    if (files_ == 1) {
      rename_path(shard(1), folder_ / kModelFileName);
      return total_;
    }
    Json map = Json::object();
    for (const auto& [name, file] : file_of_) map.set(name, final_name(file));
    for (int i = 1; i <= files_; ++i) rename_path(shard(i), folder_ / final_name(i));
    Json metadata = Json::object(), index = Json::object();
    metadata.set("total_size", total_);
    index.set("metadata", std::move(metadata));
    index.set("weight_map", std::move(map));
    write_file_atomically(folder_ / kModelIndexName, index.dump(2) + "\n");
    return total_;
  }

 private:
  [[nodiscard]] fs::path shard(int i) const { return folder_ / fmt::format("part-{:05}.safetensors", i); }
  [[nodiscard]] std::string final_name(int i) const {
    return fmt::format("model-{:05}-of-{:05}.safetensors", i, files_);
  }

  void make_room(std::uint64_t bytes) {
    if (!pending_.empty() && bytes_ + bytes > most_) flush();
  }
  void add(std::uint64_t bytes, std::uint64_t resident) {
    bytes_ += bytes;
    resident_ += resident;
  }
  void flush() {
    if (pending_.empty()) return;
    ++files_;
    const SafetensorsLayout layout = layout_safetensors(pending_, export_metadata());
    OutputFile file(shard(files_), layout.file_size);
    file.write(layout.header);
    for (const std::size_t i : layout.order) {
      file_of_[pending_[i].name] = files_;
      if (sources_[i])
        copy_bytes(*sources_[i], file);
      else
        file.write(pending_[i].data);
    }
    file.close();
    total_ += bytes_;
    pending_.clear();
    sources_.clear();
    items_.clear();
    held_.clear();
    bytes_ = resident_ = 0;
  }

  static void copy_bytes(const SafetensorsFolder::Location& stored, OutputFile& file) {
    std::vector<std::byte> part;
    for (std::uint64_t at = 0; at < stored.entry->nbytes(); at += part.size()) {
      part.resize(std::min(kCopiedBytes, stored.entry->nbytes() - at));
      stored.read(part, at);
      file.write(std::span<const std::byte>(part));
    }
  }

  fs::path folder_;
  std::uint64_t most_, bytes_ = 0, resident_ = 0, total_ = 0;
  int files_ = 0;
  std::vector<SafetensorsItem> pending_;
  std::vector<std::optional<SafetensorsFolder::Location>> sources_;  // copied tensors
  std::vector<std::unique_ptr<SafetensorsItems>> items_;
  std::deque<std::vector<std::byte>> held_;
  std::map<std::string, int> file_of_;
};

Json quantization_config(const Chosen& chosen, const QuantizationRules& rules) {
  std::map<const Scheme*, std::vector<std::string>> layers;
  for (const auto& [name, scheme] : chosen.all())
    layers[scheme].push_back(name.substr(0, name.size() - kWeightEnd.size()));
  std::vector<CompressedGroup> groups;
  for (auto& [scheme, names] : layers) {
    if (scheme == rules.scheme) names = {"Linear"};
    groups.push_back({compressed_form(*scheme), scheme->weights, scheme->inputs, names});
  }
  return compressed_config(groups, chosen.ignored());
}

std::map<std::string, float> shared_amax(const SafetensorsFolder& files, const Chosen& chosen) {
  std::map<std::string, float> largest;
  for (const auto& [name, scheme] : chosen.all()) {
    if (scheme->weights.scale != ScaleForm::e4m3_two_level) continue;
    float& most = largest[fused_key(name)];
    most = std::max(most, *amax(read_matrix(files.at(name)), Granularity::tensor).data<float>());
  }
  return largest;
}

void write_weights(const SafetensorsFolder& files, const Chosen& chosen, ShardWriter& writer, QuantizedFiles& report) {
  const std::map<std::string, float> largest = shared_amax(files, chosen);
  ProgressLine progress("quantizing");
  std::uint64_t done = 0;
  for (const std::string& name : files.names()) {
    const SafetensorsFolder::Location stored = files.at(name);
    progress.update(done, files.total_bytes());
    done += stored.entry->nbytes();
    const Scheme* scheme = chosen.of(name);
    if (scheme == nullptr) {
      QUENCH_CHECK_AS(ErrorCode::unsupported, stored.entry->dtype.has_value(),
                      "{}: {} has dtype {}, which is not known", files.path().string(), name, stored.entry->dtype_name);
      writer.copy(stored);
      ++report.kept;
      continue;
    }
    const auto most = largest.find(fused_key(name));
    ModelTensor tensor{.name = name,
                       .layer = name.substr(0, name.size() - kWeightEnd.size()),
                       .shape = stored.entry->shape,
                       .dtype = *stored.entry->dtype,
                       .scheme = scheme};
    tensor.quantized = std::make_shared<QuantizedWeight>(
        rtn(read_matrix(stored), scheme->weights, fmt::format("{}: {}", files.path().string(), name), tensor.dtype,
            most == largest.end() ? std::nullopt : std::optional(most->second)));
    writer.add_layer(tensor, compressed_form(*scheme));
    ++report.quantized;
  }
}

// Every file but weights.
void copy_others(const fs::path& from, const fs::path& to) {
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string(), ending = entry.path().extension().string();
    const bool weights = is_weights_file(name) || ending == ".safetensors" || ending == ".bin" || ending == ".pth" ||
                         ending == ".pt" || ending == ".gguf" || name.ends_with(".index.json");
    if (entry.is_regular_file() && !weights && name != kFileConfig && name != "README.md")
      fs::copy_file(entry.path(), to / name);
  }
}

}  // namespace

QuantizedFiles quantize_files(const fs::path& folder, const SaveTarget& target) {
  refuse_calibrated(find_scheme(target.quantization.scheme));
  const SavePlan plan = plan_save(target, {folder});
  refuse_members_of_models(plan);
  const std::string source = (folder / kFileConfig).string();
  Json config = Json::parse_file(folder / kFileConfig, {.max_bytes = kMostConfigBytes});
  QUENCH_CHECK_AS(ErrorCode::corrupt, config.is_object(), "{}: expected a JSON object", source);
  QUENCH_CHECK_AS(ErrorCode::bad_config, find_member(config, {kQuantizationConfig}) == nullptr,
                  "{} is quantized already: use the unquantized model", folder.string());
  const SafetensorsFolder files(folder);
  const Chosen chosen(files, config, *plan.rules);
  QuantizedFiles report{.source_bytes = files.total_bytes(), .unfit = chosen.unfit()};
  const fs::path place = resolved_path(target.path);
  remove_stale_temporaries(place.parent_path(), place.filename().string());
  StagingFolder staging(place);
  ShardWriter writer(staging.path(), static_cast<std::uint64_t>(target.max_shard_bytes));
  write_weights(files, chosen, writer, report);
  report.bytes = writer.finish();
  copy_others(folder, staging.path());
  config.set(kQuantizationConfig, quantization_config(chosen, *plan.rules));
  write_file_atomically(staging.path() / kFileConfig, config.dump(2) + "\n");
  publish_export(staging, plan.place);
  return report;
}

}  // namespace quench
