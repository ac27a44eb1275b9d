#include "export/table/reader_table.h"

#include <algorithm>
#include <array>

namespace quench {
namespace {

constexpr std::string_view kHf = "hf", kCompressed = "compressed-tensors", kTorchao = "torchao", kSparse = "sparse24",
                           kMxfp4Folder = "mxfp4";
constexpr std::string_view kVllm = "vllm", kTransformers = "transformers", kExecutorch = "executorch";

constexpr std::array kOfVllm = {kHf, kCompressed, kSparse, kMxfp4Folder};
constexpr std::array kOfTransformers = {kHf, kCompressed, kTorchao, kMxfp4Folder};
constexpr std::array<std::string_view, 1> kOfLlamaCpp = {"gguf"};
constexpr std::array kOfExecutorch = {kHf, kTorchao};
constexpr std::array kOfCompressedPackage = {kSparse};

// Releases at which the rules were measured.
constexpr FolderReader kReaders[] = {
    {kVllm, "vLLM", "0.32", kOfVllm, true},
    {kTransformers, "Transformers", "5.24 with compressed-tensors 0.20 or TorchAO 0.18", kOfTransformers},
    {"llama.cpp", "llama.cpp", "of llama-cpp-python 0.3.36", kOfLlamaCpp},
    {kExecutorch, "ExecuTorch", "1.1 through optimum-executorch", kOfExecutorch},
    {kCompressed, "the package compressed-tensors", "up to 0.13", kOfCompressedPackage}};

// Conditions of rules: bits of a set.
enum Trait : std::uint32_t {
  kAny = 0,
  kInF32 = 1u << 0,
  kNotInF32 = 1u << 1,
  kEmbeddings = 1u << 2,
  kExperts = 1u << 3,
  kExpertMatrices = 1u << 4,
  kFusedExperts = 1u << 5,  // or interleaved
  kInterleavedExperts = 1u << 6,
  kUnquantized = 1u << 7,
  kIntegers = 1u << 8,
  kZeroPoints = 1u << 9,
  kBits1 = 1u << 10,
  kBits4 = 1u << 11,
  kBits6 = 1u << 12,
  kBits8 = 1u << 13,
  kOddBits = 1u << 14,  // integers, neither 4 nor 8 bits
  kFloat8 = 1u << 15,   // e4m3, scales in high precision
  kMx = 1u << 16,
  kNvfp4 = 1u << 17,
  kMxOrNvfp4 = 1u << 18,
  kInGroups = 1u << 19,
  kGroupsNot128 = 1u << 20,
  kTensorScale = 1u << 21,
  kWeightOnly = 1u << 22,
  kInputs = 1u << 23,
  kIntegerInputs = 1u << 24,
  kFloatInputs = 1u << 25,
  kDynamicInputs = 1u << 26,
  kCalibratedInputs = 1u << 27,
  kAsymmetricInputs = 1u << 28,
  kInputsNotByTensor = 1u << 29,
  kGroupsOf256 = 1u << 30,
};
constexpr Trait operator|(Trait a, Trait b) {
  return static_cast<Trait>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}

Trait traits_of(const ExportedWeights& exported) {
  Trait traits = kAny;
  const auto add = [&](Trait trait, bool holds) { traits = holds ? traits | trait : traits; };
  add(kInF32, exported.dtype == DType::f32);
  add(kNotInF32, exported.dtype != DType::f32);
  add(kEmbeddings, exported.embeddings);
  add(kExperts, exported.experts != ExpertStorage::none);
  add(kExpertMatrices, exported.experts == ExpertStorage::matrices);
  add(kInterleavedExperts, exported.experts == ExpertStorage::interleaved);
  add(kFusedExperts, exported.experts == ExpertStorage::fused || exported.experts == ExpertStorage::interleaved);
  add(kUnquantized, exported.scheme == nullptr);
  if (exported.scheme == nullptr) return traits;
  const auto is_integer = [](const OperandScheme& operand) { return !operand.element && !operand.blocks; };
  const OperandScheme& weights = exported.scheme->weights;
  const bool integers = is_integer(weights);
  add(kIntegers, integers);
  add(kZeroPoints, integers && !weights.symmetric());
  add(kBits1, weights.bits == 1);
  add(kBits4, weights.bits == 4);
  add(kBits6, weights.bits == 6);
  add(kBits8, weights.bits == 8);
  add(kOddBits, integers && weights.bits != 4 && weights.bits != 8);
  add(kFloat8, weights.element == ElementFormat::e4m3 && weights.scale == ScaleForm::high_precision);
  add(kMx, weights.scale == ScaleForm::e8m0);
  add(kNvfp4, weights.scale == ScaleForm::e4m3_two_level);
  add(kMxOrNvfp4, weights.scale != ScaleForm::high_precision);
  add(kInGroups, weights.sharing == ScaleSharing::group);
  add(kGroupsNot128, weights.group_size != 128);
  add(kGroupsOf256, weights.group_size == 256);
  add(kTensorScale, weights.sharing == ScaleSharing::tensor);
  const auto& inputs = exported.scheme->inputs;
  add(kWeightOnly, !inputs);
  if (!inputs) return traits;
  add(kInputs, true);
  add(kIntegerInputs, is_integer(*inputs));
  add(kFloatInputs, inputs->element.has_value());
  add(kDynamicInputs, !inputs->calibrated);
  add(kCalibratedInputs, inputs->calibrated);
  add(kAsymmetricInputs, !inputs->symmetric());
  add(kInputsNotByTensor, inputs->sharing != ScaleSharing::tensor);
  return traits;
}

struct Rule {
  std::string_view reader, format;
  Trait traits;  // all of them
  ReaderResult result;
  std::string_view reason;
};

using enum ReaderResult;

// The first match; else the reader runs the scheme.
constexpr Rule kRules[] = {
    // CompressedTensorsConfig.
    {kVllm, kCompressed, kEmbeddings, refused,
     "vLLM reads quantized embeddings as packed integers (pack-quantized) only"},
    {kVllm, kCompressed, kIntegers | kBits1, refused, "vLLM supports weights of 2 to 8 bits, not 1"},
    {kVllm, kCompressed, kZeroPoints | kOddBits, refused, "vLLM supports zero points of 4 and 8 bits"},
    {kVllm, kCompressed, kMx | kBits6, refused, "vLLM does not support MXFP6"},
    {kVllm, kCompressed, kOddBits | kIntegerInputs | kDynamicInputs, refused,
     "with 8-bit integer inputs vLLM supports weights of 4 and 8 bits"},
    {kVllm, kCompressed, kIntegers | kBits8 | kInGroups | kIntegerInputs | kDynamicInputs, refused,
     "with integer inputs vLLM supports 8-bit weights with a scale a row or tensor, not in groups"},
    {kVllm, kCompressed, kIntegers | kGroupsNot128 | kFloatInputs, refused,
     "with float8 inputs vLLM supports 4-bit weights in groups of 128"},
    {kVllm, kCompressed, kExperts | kZeroPoints, refused, "vLLM supports no zero points in experts"},
    {kVllm, kCompressed, kExperts | kOddBits, refused, "vLLM supports experts of integers of 4 and 8 bits"},
    {kVllm, kCompressed, kExperts | kIntegers | kIntegerInputs | kCalibratedInputs, refused,
     "vLLM supports experts with 8-bit integer inputs by token, not under a calibrated scale"},
    {kVllm, kCompressed, kExperts | kIntegers | kBits8 | kIntegerInputs | kAsymmetricInputs, not_tried,
     "vLLM rounds the inputs of 8-bit experts without a zero point"},
    {kVllm, kCompressed, kExperts | kFloat8 | kWeightOnly, refused,
     "vLLM supports float8 experts with float8 inputs only"},
    {kVllm, kCompressed, kExperts | kFloat8 | kTensorScale | kInputsNotByTensor, refused,
     "vLLM supports float8 experts with a scale a tensor under a calibrated input scale only"},
    {kVllm, kCompressed, kFusedExperts, not_tried, ""},
    {kVllm, kCompressed, kIntegers | kGroupsOf256, not_tried, "groups of 256"},
    {kVllm, kCompressed, kIntegers | kFloatInputs, runs, "on Hopper GPUs only (compute capability 9.0)"},
    {kVllm, kCompressed, kMx | kWeightOnly, runs, "on GPUs; with MX tensor cores, inputs are quantized too"},
    {kVllm, kCompressed, kMxOrNvfp4, runs, "on GPUs"},
    {kVllm, kMxfp4Folder, kAny, not_tried, "vLLM has kernels for gpt-oss's folders"},
    {kVllm, kSparse, kAny, refused, "vLLM has removed 2:4 sparse weights (sparsity_config)"},
    // Decompressed to bf16, or kept quantized.
    {kTransformers, kCompressed, kInterleavedExperts, wrong,
     "Transformers does not find gpt-oss's experts in this format and computes with random ones; use format mxfp4"},
    {kTransformers, kCompressed, kExpertMatrices | kNvfp4, wrong,
     "Transformers fuses NVFP4 experts and drops their scales without a message"},
    {kTransformers, kCompressed, kExpertMatrices | kMx | kBits8, wrong,
     "Transformers fuses MXFP8 experts and drops their scales without a message, or does not load them (by their "
     "sizes)"},
    {kTransformers, kCompressed, kExpertMatrices | kIntegers | kIntegerInputs, refused,
     "Transformers cannot fuse experts of unpacked integers (int-quantized)"},
    {kTransformers, kCompressed, kEmbeddings | kZeroPoints, not_tried, "zero points of embeddings are unpacked"},
    {kTransformers, kCompressed, kZeroPoints, refused, "Transformers expects unpacked zero points; use format torchao"},
    {kTransformers, kCompressed, kInF32 | kMxOrNvfp4, cannot_run,
     "it dequantizes MX and NVFP4 to bf16, which f32 layers do not accept; write bf16 (dtype)"},
    {kTransformers, kTorchao, kMx | kWeightOnly, cannot_run, "TorchAO supports MX weights with MX inputs only"},
    {kTransformers, kTorchao, kFloat8 | kInputs, runs, "GPUs need compute capability 8.9 or later"},
    {kTransformers, kTorchao, kMx, runs, "emulated"},
    // optimum-executorch, XNNPACK.
    {kExecutorch, kHf, kNotInF32, cannot_run, "its CPU kernels need f32; write f32 (dtype)"},
    {kExecutorch, kTorchao, kNotInF32, cannot_run, "its CPU kernels need f32; write f32 (dtype)"},
    {kExecutorch, kTorchao, kIntegers | kBits4 | kInGroups | kIntegerInputs | kDynamicInputs, runs, "whole on XNNPACK"},
    {kExecutorch, kTorchao, kAny, not_tried, ""},
    {kExecutorch, kHf, kUnquantized, runs, "whole on XNNPACK"},
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
  static const ChoiceTable<FolderReader> table("reader", {std::begin(kReaders), std::end(kReaders)});
  return table;
}

ReaderVerdict reader_verdict(const FolderReader& reader, const ExportFormat& format, const ExportedWeights& weights) {
  const Trait traits = traits_of(weights);
  for (const Rule& rule : kRules)
    if (rule.reader == reader.name && rule.format == format.name && (rule.traits & ~traits) == 0)
      return {rule.result, rule.reason};
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
