#include "export/table/format.h"

#include "core/safetensors/safetensors_folder.h"
#include "export/formats/compressed_tensors/config.h"
#include "export/formats/compressed_tensors/sparse_24.h"
#include "export/formats/compressed_tensors/writer.h"
#include "export/formats/export_mark.h"
#include "export/formats/gguf/names.h"
#include "export/formats/gguf/query_scale.h"
#include "export/formats/gguf/reader.h"
#include "export/formats/gguf/tokenizer.h"
#include "export/formats/gguf/writer.h"
#include "export/formats/mxfp4_experts/writer.h"
#include "export/formats/safetensors_items.h"
#include "export/formats/torchao/writer.h"
#include "export/table/mixed_types.h"

namespace quench {
namespace {

std::string stores_no_codes(const Scheme&) {
  return "it stores values in high precision";
}

// "model.layers.0.mlp.up_proj" of suffixes ".weight", ".weight_scale", "._weight_qdata", ".input_scale".
std::string layer_of(std::string_view name) {
  return std::string(name.substr(0, name.rfind('.')));
}

Json write_dense(const ExportJob& job) {
  SafetensorsItems items;
  for (const ModelTensor& tensor : job.tensors) items.add(tensor);
  write_safetensors_folder(job.folder, items.take(), job.max_shard_bytes, export_metadata());
  return {};
}

Json write_compressed(const ExportJob& job) {
  return write_compressed_tensors(job.tensors, job.folder, job.max_shard_bytes, job.kv_cache);
}

Json write_torchao_folder(const ExportJob& job) {
  return write_torchao(job.tensors, job.folder, job.max_shard_bytes);
}
Json write_sparse(const ExportJob& job) {
  return write_sparse_24(job.tensors, job.folder, job.max_shard_bytes);
}

// By Transformers classes, in which fused experts are no linear layers.
void require_separate_experts(const nn::ModelConfig& config) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, !config.experts.fused_storage,
                  "model type '{}' has all experts of a layer in one tensor, which this format cannot store; use hf or "
                  "compressed-tensors",
                  config.model_type);
}

}  // namespace

const ChoiceTable<ExportFormat>& export_formats() {
  static const ChoiceTable<ExportFormat> table(
      "export format", {{.name = "hf",
                         .summary = "Hugging Face safetensors in high precision",
                         .quantized = false,
                         .problem = stores_no_codes,
                         .write = write_dense,
                         .mtp = true},
                        {.name = "compressed-tensors",
                         .summary = "quantized safetensors for vLLM, SGLang and Transformers",
                         .quantized = true,
                         .problem = compressed_problem,
                         .write = write_compressed,
                         .embeddings = true,
                         .kv_cache = true},
                        {.name = "torchao",
                         .summary = "quantized safetensors in the classes of TorchAO, for Transformers",
                         .quantized = true,
                         .problem = torchao_problem,
                         .write = write_torchao_folder,
                         .experts = false},  // Transformers 5 fuses experts; separate quantized ones do not match
                        {.name = "mxfp4",
                         .summary = "gpt-oss's own safetensors: experts in MXFP4, all else in high precision",
                         .quantized = true,
                         .problem = mxfp4_problem,
                         .write = write_mxfp4_experts,
                         .require_model = require_mxfp4_model,
                         .kept = mxfp4_kept,
                         .fused_experts = false},
                        {.name = "sparse24",
                         .summary = "2:4 sparse safetensors of compressed-tensors (sparse-24-bitmask)",
                         .quantized = false,
                         .problem = stores_no_codes,
                         .write = write_sparse,
                         .require_model = require_separate_experts,
                         .sparse = true},
                        {.name = "gguf",
                         .summary = "one file for llama.cpp, quantized or not, with the tokenizer",
                         .quantized = false,
                         .scale_dtype = DType::f16,
                         .problem = gguf_problem,
                         .write = write_gguf,
                         .weights_file = kGgufFileName,
                         .require_model = require_gguf_model,
                         .embeddings = true,
                         .tied_embeddings = true,
                         .fold = fold_query_scale,
                         .kept = gguf_kept,
                         .tokenizer_bytes = gguf_tokenizer_bytes,
                         .fused_experts = false}});
  return table;
}

std::vector<std::string> export_format_names() {
  return export_formats().names();
}

bool is_format_file(std::string_view name) {
  return std::ranges::any_of(export_formats(), [&](const ExportFormat& format) { return format.weights_file == name; });
}

StoredBytes stored_bytes(const std::filesystem::path& folder) {
  StoredBytes stored;
  if (const std::filesystem::path gguf = find_gguf_file(folder); !gguf.empty()) {
    const GgufHead head = read_gguf_head(gguf);
    const GgufArchitecture* known = stored_gguf_architecture(head);
    const GgufArchitecture architecture = known == nullptr ? GgufArchitecture{} : *known;
    for (const GgufEntry& entry : head.tensors)
      stored.layers[layer_of(hf_tensor_name(entry.name, architecture).value_or(entry.name))] += entry.bytes;
    stored.files = std::filesystem::file_size(gguf);
    return stored;
  }
  namespace fs = std::filesystem;
  if (!fs::exists(folder / kModelFileName) && !fs::exists(folder / kModelIndexName)) {  // external format
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (entry.is_regular_file() && entry.path().extension() != ".json") stored.files += entry.file_size();
    return stored;
  }
  const SafetensorsFolder files(folder);
  for (const std::string& name : files.names())
    if (!name.ends_with(".bias")) stored.layers[layer_of(name)] += files.at(name).entry->nbytes();
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") stored.files += entry.file_size();
  return stored;
}

const ExportFormat& require_export_format(std::string_view name, std::string_view key) {
  return export_formats().require(name, key);
}

void check_format_and_scheme(const ExportFormat& format, const Scheme* scheme, bool with_cache) {
  if (scheme == nullptr && format.quantized && !with_cache) {
    const Scheme* example = find_scheme("int4_weight_only_g128");
    for (const Scheme& other : scheme_table())
      if (!format.problem(*example).empty() && format.problem(other).empty()) example = &other;
    QUENCH_FAIL(ErrorCode::bad_config, "format {} stores quantized weights: name a scheme, for example {}; known: {}",
                format.name, example->name, scheme_names());
  }
  if (scheme == nullptr) return;
  const std::string problem = format.problem(*scheme);
  if (problem.empty()) return;
  std::vector<std::string> others;
  for (const ExportFormat& other : export_formats())
    if (other.problem(*scheme).empty()) others.emplace_back(other.name);
  QUENCH_FAIL(ErrorCode::bad_config, "format {} cannot store scheme {}: {}{}", format.name, scheme->name, problem,
              others.empty() ? "" : fmt::format("; formats that store it: {}", fmt::join(others, ", ")));
}

void check_format_and_rules(const ExportFormat& format, const QuantizationRules* rules, bool with_cache) {
  check_format_and_scheme(format, rules != nullptr ? rules->scheme : nullptr, with_cache);
  if (rules == nullptr) return;
  if (rules->embeddings != nullptr) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, format.embeddings, "format {} stores embeddings in high precision alone",
                    format.name);
    check_format_and_scheme(format, rules->embeddings);
  }
  for (const auto& [pattern, scheme] : rules->rules)
    if (scheme != nullptr) check_format_and_scheme(format, scheme);
}

void apply_format(const ExportFormat& format, QuantizationRules& rules, const std::vector<ModelTensor>& tensors,
                  const nn::ModelConfig& model) {
  rules.scale_dtype = format.scale_dtype;
  rules.experts = format.experts;
  rules.kept = format.kept;
  choose_mixed_types(rules, tensors, model);
}

void require_readable_table(const ExportFormat& format, const QuantizationRules& rules, const nn::ModelConfig& model) {
  QUENCH_CHECK_AS(ErrorCode::unsupported,
                  rules.embeddings == nullptr || !model.tie_word_embeddings || format.tied_embeddings,
                  "readers of {} misread a quantized embedding table that the head shares (tie_word_embeddings); use "
                  "format gguf with a scheme of its blocks, or store embeddings in high precision",
                  format.name);
}

}  // namespace quench
