#include "export/table/reader_table.h"

#include <algorithm>
#include <array>

namespace quench {
namespace {

constexpr std::string_view kHf = "hf", kCompressed = "compressed-tensors", kTorchao = "torchao", kSparse = "sparse24",
                           kGguf = "gguf", kMxfp4Folder = "mxfp4";
constexpr std::string_view kVllm = "vllm", kTransformers = "transformers", kLlamaCpp = "llama.cpp",
                           kExecutorch = "executorch", kCompressedPackage = "compressed-tensors";

constexpr std::array kOfVllm = {kHf, kCompressed, kSparse, kMxfp4Folder};
constexpr std::array kOfTransformers = {kHf, kCompressed, kTorchao, kMxfp4Folder};
constexpr std::array kOfLlamaCpp = {kGguf};
constexpr std::array kOfExecutorch = {kHf, kTorchao};
constexpr std::array kOfCompressedPackage = {kSparse};

bool is_integer(const OperandScheme& s) {
  return !s.element && !s.blocks;
}
bool weight_only(const ExportedWeights& w) {
  return w.scheme != nullptr && !w.scheme->inputs;
}
bool has_integers(const ExportedWeights& w) {
  return w.scheme != nullptr && is_integer(w.scheme->weights);
}
bool has_scales(const ExportedWeights& w, ScaleForm form) {
  return w.scheme != nullptr && w.scheme->weights.scale == form;
}
// Per token.
bool integer_tokens(const ExportedWeights& w) {
  return w.scheme != nullptr && w.scheme->inputs && is_integer(*w.scheme->inputs) && !w.scheme->inputs->calibrated;
}

bool always(const ExportedWeights&) {
  return true;
}
bool in_f32(const ExportedWeights& w) {
  return w.dtype == DType::f32;
}
bool not_in_f32(const ExportedWeights& w) {
  return w.dtype != DType::f32;
}
bool one_bit(const ExportedWeights& w) {
  return has_integers(w) && w.scheme->weights.bits == 1;
}
bool zero_points(const ExportedWeights& w) {
  return has_integers(w) && !w.scheme->weights.symmetric();
}
bool embeddings(const ExportedWeights& w) {
  return w.embeddings;
}
bool odd_bits(const ExportedWeights& w) {
  return has_integers(w) && w.scheme->weights.bits != 4 && w.scheme->weights.bits != 8;
}
bool zero_points_of_embeddings(const ExportedWeights& w) {
  return w.embeddings && zero_points(w);
}
bool zero_points_of_odd_bits(const ExportedWeights& w) {
  return zero_points(w) && odd_bits(w);
}
bool mxfp6(const ExportedWeights& w) {
  return has_scales(w, ScaleForm::e8m0) && w.scheme->weights.bits == 6;
}
bool mx(const ExportedWeights& w) {
  return has_scales(w, ScaleForm::e8m0);
}
bool mx_weight_only(const ExportedWeights& w) {
  return mx(w) && weight_only(w);
}
bool mx_or_nvfp4(const ExportedWeights& w) {
  return mx(w) || has_scales(w, ScaleForm::e4m3_two_level);
}
bool mx_or_nvfp4_in_f32(const ExportedWeights& w) {
  return in_f32(w) && mx_or_nvfp4(w);
}
bool experts(const ExportedWeights& w) {
  return w.experts != ExpertStorage::none;
}
bool fused_experts(const ExportedWeights& w) {
  return w.experts == ExpertStorage::fused || w.experts == ExpertStorage::interleaved;
}
bool interleaved_experts(const ExportedWeights& w) {
  return w.experts == ExpertStorage::interleaved;
}
bool nvfp4_matrices(const ExportedWeights& w) {
  return w.experts == ExpertStorage::matrices && has_scales(w, ScaleForm::e4m3_two_level);
}
bool mxfp8_matrices(const ExportedWeights& w) {
  return w.experts == ExpertStorage::matrices && mx(w) && w.scheme->weights.bits == 8;
}
// Stored unpacked, one value per byte.
bool integer_experts_with_integer_inputs(const ExportedWeights& w) {
  return experts(w) && has_integers(w) && w.scheme->inputs && is_integer(*w.scheme->inputs);
}
bool integer_matrices_with_integer_inputs(const ExportedWeights& w) {
  return w.experts == ExpertStorage::matrices && integer_experts_with_integer_inputs(w);
}
bool integer_experts_of_odd_bits(const ExportedWeights& w) {
  return experts(w) && odd_bits(w);
}
bool experts_with_zero_points(const ExportedWeights& w) {
  return experts(w) && zero_points(w);
}
bool experts_with_static_integer_inputs(const ExportedWeights& w) {
  return integer_experts_with_integer_inputs(w) && w.scheme->inputs->calibrated;
}
bool experts_with_asymmetric_int8_inputs(const ExportedWeights& w) {
  return integer_experts_with_integer_inputs(w) && !w.scheme->inputs->symmetric() && w.scheme->weights.bits == 8;
}
bool float8_experts(const ExportedWeights& w) {
  return experts(w) && w.scheme != nullptr && w.scheme->weights.element == ElementFormat::e4m3 &&
         w.scheme->weights.scale == ScaleForm::high_precision;
}
bool float8_experts_without_inputs(const ExportedWeights& w) {
  return float8_experts(w) && !w.scheme->inputs;
}
// Per tensor with tensor inputs, per row with token inputs, or blocks.
bool float8_experts_of_mixed_scales(const ExportedWeights& w) {
  return float8_experts(w) && w.scheme->inputs && w.scheme->weights.sharing == ScaleSharing::tensor &&
         w.scheme->inputs->sharing != ScaleSharing::tensor;
}
bool odd_bits_with_integer_inputs(const ExportedWeights& w) {
  return odd_bits(w) && integer_tokens(w);
}
bool int8_groups_with_integer_inputs(const ExportedWeights& w) {
  return has_integers(w) && integer_tokens(w) && w.scheme->weights.bits == 8 &&
         w.scheme->weights.sharing == ScaleSharing::group;
}
bool float8_inputs_for_integers(const ExportedWeights& w) {
  return has_integers(w) && w.scheme->inputs && w.scheme->inputs->element;
}
bool float8_inputs_for_other_groups(const ExportedWeights& w) {
  return float8_inputs_for_integers(w) && w.scheme->weights.group_size != 128;
}
bool float8_by_row_with_inputs(const ExportedWeights& w) {
  return w.scheme != nullptr && w.scheme->inputs && w.scheme->weights.element == ElementFormat::e4m3 &&
         w.scheme->weights.scale == ScaleForm::high_precision;
}
bool high_precision(const ExportedWeights& w) {
  return w.scheme == nullptr;
}
bool int4_with_integer_inputs(const ExportedWeights& w) {
  return has_integers(w) && integer_tokens(w) && w.scheme->weights.bits == 4 &&
         w.scheme->weights.sharing == ScaleSharing::group;
}

struct Rule {
  std::string_view reader, format;
  bool (*applies)(const ExportedWeights&);
  ReaderVerdict verdict;
};

using enum ReaderResult;

// The first match; else the reader runs the scheme.
constexpr std::array kRules = {
    // CompressedTensorsConfig.
    Rule{kVllm,
         kCompressed,
         embeddings,
         {refused, "vLLM reads quantized embeddings as packed integers (pack-quantized) only"}},
    Rule{kVllm, kCompressed, one_bit, {refused, "vLLM supports weights of 2 to 8 bits, not 1"}},
    Rule{kVllm, kCompressed, zero_points_of_odd_bits, {refused, "vLLM supports zero points of 4 and 8 bits"}},
    Rule{kVllm, kCompressed, mxfp6, {refused, "vLLM does not support MXFP6"}},
    Rule{kVllm,
         kCompressed,
         odd_bits_with_integer_inputs,
         {refused, "with 8-bit integer inputs vLLM supports weights of 4 and 8 bits"}},
    Rule{kVllm,
         kCompressed,
         int8_groups_with_integer_inputs,
         {refused, "with integer inputs vLLM supports 8-bit weights with a scale a row or tensor, not in groups"}},
    Rule{kVllm,
         kCompressed,
         float8_inputs_for_other_groups,
         {refused, "with float8 inputs vLLM supports 4-bit weights in groups of 128"}},
    Rule{kVllm, kCompressed, experts_with_zero_points, {refused, "vLLM supports no zero points in experts"}},
    Rule{kVllm,
         kCompressed,
         integer_experts_of_odd_bits,
         {refused, "vLLM supports experts of integers of 4 and 8 bits"}},
    Rule{kVllm,
         kCompressed,
         experts_with_static_integer_inputs,
         {refused, "vLLM supports experts with 8-bit integer inputs by token, not under a calibrated scale"}},
    Rule{kVllm,
         kCompressed,
         experts_with_asymmetric_int8_inputs,
         {not_tried, "vLLM rounds the inputs of 8-bit experts without a zero point"}},
    Rule{kVllm,
         kCompressed,
         float8_experts_without_inputs,
         {refused, "vLLM supports float8 experts with float8 inputs only"}},
    Rule{kVllm,
         kCompressed,
         float8_experts_of_mixed_scales,
         {refused, "vLLM supports float8 experts with a scale a tensor under a calibrated input scale only"}},
    Rule{kVllm, kCompressed, fused_experts, {not_tried, ""}},
    Rule{kVllm, kCompressed, float8_inputs_for_integers, {runs, "on Hopper GPUs only (compute capability 9.0)"}},
    Rule{kVllm, kCompressed, mx_weight_only, {runs, "on GPUs; with MX tensor cores, inputs are quantized too"}},
    Rule{kVllm, kCompressed, mx_or_nvfp4, {runs, "on GPUs"}},
    Rule{kVllm, kMxfp4Folder, always, {not_tried, "vLLM has kernels for gpt-oss's folders"}},
    Rule{kVllm, kSparse, always, {refused, "vLLM has removed 2:4 sparse weights (sparsity_config)"}},
    // Decompressed to bf16, or kept quantized.
    Rule{kTransformers,
         kCompressed,
         interleaved_experts,
         {wrong,
          "Transformers does not find gpt-oss's experts in this format and computes with random ones; use format "
          "mxfp4"}},
    Rule{kTransformers,
         kCompressed,
         nvfp4_matrices,
         {wrong, "Transformers fuses NVFP4 experts and drops their scales without a message"}},
    Rule{kTransformers,
         kCompressed,
         mxfp8_matrices,
         {wrong,
          "Transformers fuses MXFP8 experts and drops their scales without a message, or does not load them (by "
          "their sizes)"}},
    Rule{kTransformers,
         kCompressed,
         integer_matrices_with_integer_inputs,
         {refused, "Transformers cannot fuse experts of unpacked integers (int-quantized)"}},
    Rule{kTransformers, kCompressed, zero_points_of_embeddings, {not_tried, "zero points of embeddings are unpacked"}},
    Rule{kTransformers,
         kCompressed,
         zero_points,
         {refused, "Transformers expects unpacked zero points; use format torchao"}},
    Rule{kTransformers,
         kCompressed,
         mx_or_nvfp4_in_f32,
         {cannot_run, "it dequantizes MX and NVFP4 to bf16, which f32 layers do not accept; write bf16 (dtype)"}},
    Rule{kTransformers, kTorchao, mx_weight_only, {cannot_run, "TorchAO supports MX weights with MX inputs only"}},
    Rule{kTransformers, kTorchao, float8_by_row_with_inputs, {runs, "GPUs need compute capability 8.9 or later"}},
    Rule{kTransformers, kTorchao, mx, {runs, "emulated"}},
    // optimum-executorch, XNNPACK.
    Rule{kExecutorch, kHf, not_in_f32, {cannot_run, "its CPU kernels need f32; write f32 (dtype)"}},
    Rule{kExecutorch, kTorchao, not_in_f32, {cannot_run, "its CPU kernels need f32; write f32 (dtype)"}},
    Rule{kExecutorch, kTorchao, int4_with_integer_inputs, {runs, "whole on XNNPACK"}},
    Rule{kExecutorch, kTorchao, always, {not_tried, ""}},
    Rule{kExecutorch, kHf, high_precision, {runs, "whole on XNNPACK"}},
};

std::string complaint(const FolderReader& reader, const ExportFormat& format, const ExportedWeights& weights,
                      const ReaderVerdict& verdict) {
  const std::string_view does = verdict.result == cannot_run ? "loads the folder but cannot run it"
                                : verdict.result == refused  ? "does not load it"
                                                             : "computes wrong values from it";
  std::string text = weights.scheme != nullptr ? fmt::format("scheme {}{} in format {}", weights.scheme->name,
                                                             weights.embeddings ? " of embeddings" : "", format.name)
                                               : fmt::format("format {} in {}", format.name, to_string(weights.dtype));
  text += fmt::format(": {} {} {}: {}", reader.title, reader.release, does, verdict.reason);
  // The dtype is the reason if another would run.
  const auto runs_in = [&](DType dtype) {
    ExportedWeights other = weights;
    other.dtype = dtype;
    return !reader_verdict(reader, format, other).fails();
  };
  const bool dtype_alone = runs_in(DType::bf16) || runs_in(DType::f32);
  if (const Scheme* near = nearest_runnable(reader, format, weights); near != nullptr && !dtype_alone)
    text += fmt::format("; the nearest scheme that it runs is {}", near->name);
  return text;
}

}  // namespace

std::string_view to_string(ReaderResult result) noexcept {
  constexpr std::array<std::string_view, 5> kNames = {"runs", "not tried", "loads, cannot run", "refused",
                                                      "computes wrong values"};
  return kNames[static_cast<std::size_t>(result)];
}

bool FolderReader::reads(const ExportFormat& format) const {
  return std::ranges::find(formats, format.name) != formats.end();
}

const ChoiceTable<FolderReader>& folder_readers() {
  static const ChoiceTable<FolderReader> table(
      "reader", {{kVllm, "vLLM", "0.32", kOfVllm, true},
                 {kTransformers, "Transformers", "5.24 with compressed-tensors 0.20 or TorchAO 0.18", kOfTransformers},
                 {kLlamaCpp, "llama.cpp", "of llama-cpp-python 0.3.36", kOfLlamaCpp},
                 {kExecutorch, "ExecuTorch", "1.1 through optimum-executorch", kOfExecutorch},
                 {kCompressedPackage, "the package compressed-tensors", "up to 0.13", kOfCompressedPackage}});
  return table;
}

ReaderVerdict reader_verdict(const FolderReader& reader, const ExportFormat& format, const ExportedWeights& weights) {
  for (const Rule& rule : kRules)
    if (rule.reader == reader.name && rule.format == format.name && rule.applies(weights)) return rule.verdict;
  return {};
}

const Scheme* nearest_runnable(const FolderReader& reader, const ExportFormat& format, const ExportedWeights& weights) {
  if (weights.scheme == nullptr) return nullptr;
  const Scheme* nearest = nullptr;
  int least = 0;
  for (const Scheme& scheme : scheme_table()) {
    ExportedWeights other = weights;
    other.scheme = &scheme;
    const bool usable = format.problem(scheme).empty() && reader_verdict(reader, format, other).result == runs;
    if (!usable) continue;
    const int d = scheme_distance(*weights.scheme, scheme);
    if (nearest != nullptr && d >= least) continue;
    least = d;
    nearest = &scheme;
  }
  return nearest;
}

std::vector<std::string> check_readers(const ExportFormat& format, const ExportedWeights& weights,
                                       const FolderReader* named) {
  if (named != nullptr) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, named->reads(format), "{} does not read format {}", named->title,
                    format.name);
    const ReaderVerdict verdict = reader_verdict(*named, format, weights);
    QUENCH_CHECK_AS(ErrorCode::bad_config, !verdict.fails(), "{}", complaint(*named, format, weights, verdict));
    return {};
  }
  std::vector<std::string> complaints;
  std::size_t readers = 0, hopeless = 0;  // failing for every dtype
  ExportedWeights usual = weights;
  usual.dtype = DType::bf16;
  for (const FolderReader& reader : folder_readers()) {
    if (!reader.reads(format) || reader.name == kExecutorch) continue;  // on-device: only if named
    const ReaderVerdict verdict = reader_verdict(reader, format, weights);
    ++readers;
    if (verdict.fails()) complaints.push_back(complaint(reader, format, weights, verdict));
    if (reader_verdict(reader, format, usual).fails()) ++hopeless;
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, complaints.empty() || hopeless < readers, "{}", fmt::join(complaints, "; "));
  return complaints;
}

ExpertSchemes expert_schemes(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules,
                             const nn::ModelConfig& model) {
  return {schemes_of_experts(tensors, rules), model.experts.interleaved_storage ? ExpertStorage::interleaved
                                              : model.experts.fused_storage     ? ExpertStorage::fused
                                                                                : ExpertStorage::matrices};
}

std::vector<std::string> check_readers(const ExportFormat& format, const QuantizationRules* rules, DType dtype,
                                       const ExpertSchemes& experts, const FolderReader* reader) {
  std::vector<ExportedWeights> kinds;
  const auto add = [&](const Scheme* scheme, bool of_table) {
    const auto known = [&](const ExportedWeights& kind) {
      return kind.scheme == scheme && kind.embeddings == of_table;
    };
    if (scheme == nullptr || std::ranges::any_of(kinds, known)) return;
    const bool of_experts = !of_table && std::ranges::find(experts.schemes, scheme) != experts.schemes.end();
    kinds.push_back({scheme, dtype, of_experts ? experts.storage : ExpertStorage::none, of_table});
  };
  if (rules != nullptr) {
    add(rules->scheme, false);
    for (const auto& [pattern, scheme] : rules->rules) add(scheme, false);
    add(rules->embeddings, true);
  }
  if (kinds.empty()) kinds.push_back({nullptr, dtype});
  std::vector<std::string> warnings;
  for (const ExportedWeights& weights : kinds) {
    for (std::string& warning : check_readers(format, weights, reader))
      if (std::ranges::find(warnings, warning) == warnings.end()) warnings.push_back(std::move(warning));
  }
  return warnings;
}

}  // namespace quench
