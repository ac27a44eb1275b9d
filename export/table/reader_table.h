#pragma once
// Programs that read exported folders, and what each does with a scheme in a format: one table, from which
// docs/reference/formats.md is written and which speaks before a model is exported.

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
  cannot_run,  // it loads the folder and fails at the first step
  refused,     // it does not load the folder
  wrong,       // it computes with other values and says nothing
};
// "runs", "not tried", "loads, cannot run", "refused", "computes wrong values"
[[nodiscard]] std::string_view to_string(ReaderResult result) noexcept;

struct FolderReader {
  std::string_view name;     // "vllm"
  std::string_view title;    // "vLLM"
  std::string_view release;  // that the table was checked with
  std::span<const std::string_view> formats;

  [[nodiscard]] bool reads(const ExportFormat& format) const;
};

[[nodiscard]] const ChoiceTable<FolderReader>& folder_readers();

// The part of an export on which readers differ.
struct ExportedWeights {
  const Scheme* scheme = nullptr;  // null: high precision
  DType dtype = DType::bf16;       // of what is not quantized, and of scales
  bool experts = false;            // some of the quantized layers are experts
};

struct ReaderVerdict {
  ReaderResult result = ReaderResult::runs;
  std::string_view reason = {};  // empty where it runs and nothing is to be said

  [[nodiscard]] bool fails() const noexcept { return result > ReaderResult::not_tried; }
};

// `reader` reads the format.
[[nodiscard]] ReaderVerdict reader_verdict(const FolderReader& reader, const ExportFormat& format,
                                           const ExportedWeights& weights);

// The scheme nearest to that of `weights` (bits, inputs, kind of element, groups) which the format stores and the
// reader runs; null where there is none.
[[nodiscard]] const Scheme* nearest_runnable(const FolderReader& reader, const ExportFormat& format,
                                             const ExportedWeights& weights);

// Throws bad_config where `reader`, or, with a null one, every reader of the format whatever the dtype, fails at the
// weights, with its reason and the nearest scheme that it runs. Returns warnings of the same form for other readers
// that fail.
[[nodiscard]] std::vector<std::string> check_readers(const ExportFormat& format, const ExportedWeights& weights,
                                                     const FolderReader* reader);
// The same for each scheme of the rules (null: high precision), the main one first; a warning is given once.
// `of_experts`: the schemes under which experts are quantized.
[[nodiscard]] std::vector<std::string> check_readers(const ExportFormat& format, const QuantizationRules* rules,
                                                     DType dtype, std::span<const Scheme* const> of_experts,
                                                     const FolderReader* reader);

// A table for each format: families of schemes by reader. Markdown.
[[nodiscard]] std::string reader_reference();

}  // namespace quench
