#pragma once
// Compatibility of inference engines, formats and schemes: for docs/reference/formats.md and checks before export.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "export/table/format.h"

namespace quench {

enum class ReaderResult : std::uint8_t {
  runs,
  not_tried,
  cannot_run,  // fails at the first step
  refused,     // does not load
  wrong,       // silently wrong values
};
// "runs", "not tried", "loads, cannot run", "refused", "computes wrong values"
[[nodiscard]] std::string_view to_string(ReaderResult result) noexcept;

struct FolderReader {
  std::string_view name;     // "vllm"
  std::string_view title;    // "vLLM"
  std::string_view release;  // tested
  std::span<const std::string_view> formats;
  bool fuses_layers = false;  // runs parts of a layer as one (fused_layers.h)

  [[nodiscard]] bool reads(const ExportFormat& format) const;
};

[[nodiscard]] const ChoiceTable<FolderReader>& folder_readers();

// Quantized experts, by the form in which engines hold those of the family.
enum class ExpertStorage : std::uint8_t {
  none,
  matrices,     // one a projection, fused when read (Mixtral, Qwen, DeepSeek-V3)
  fused,        // ExpertsSpec::fused_storage (Llama 4)
  interleaved,  // ExpertsSpec::interleaved_storage (gpt-oss)
};

// As distinguished by engines.
struct ExportedWeights {
  const Scheme* scheme = nullptr;  // null: unquantized
  DType dtype = DType::bf16;       // unquantized weights, scales
  ExpertStorage experts = ExpertStorage::none;
  bool embeddings = false;  // the embedding table, not linear layers
};

struct ReaderVerdict {
  ReaderResult result = ReaderResult::runs;
  std::string_view reason = {};  // may be empty

  [[nodiscard]] bool fails() const noexcept { return result > ReaderResult::not_tried; }
};

// `reader` must support the format.
[[nodiscard]] ReaderVerdict reader_verdict(const FolderReader& reader, const ExportFormat& format,
                                           const ExportedWeights& weights);

// Nearest scheme (bits, inputs, element kind, groups) of the format that the reader runs; or null.
[[nodiscard]] const Scheme* nearest_runnable(const FolderReader& reader, const ExportFormat& format,
                                             const ExportedWeights& weights);

// Throws bad_config, with reason and nearest runnable scheme, if `reader` (null: every reader of the format, for any
// dtype) fails. Returns warnings of other failing readers.
[[nodiscard]] std::vector<std::string> check_readers(const ExportFormat& format, const ExportedWeights& weights,
                                                     const FolderReader* reader);

// Schemes of a model's quantized experts, distinct.
struct ExpertSchemes {
  std::vector<const Scheme*> schemes;
  ExpertStorage storage = ExpertStorage::none;
};
// Throws like require_quantizable().
[[nodiscard]] ExpertSchemes expert_schemes(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules,
                                           const nn::ModelConfig& model);

// Per scheme of the rules (null: unquantized), main scheme first, without repeated warnings.
[[nodiscard]] std::vector<std::string> check_readers(const ExportFormat& format, const QuantizationRules* rules,
                                                     DType dtype, const ExpertSchemes& experts,
                                                     const FolderReader* reader);

// Markdown, per format: scheme families by reader.
[[nodiscard]] std::string reader_reference();

}  // namespace quench
