#include <algorithm>

#include "export/budget/bit_budget.h"
#include "export/mixes/tensor_types.h"

namespace quench {
namespace {

constexpr std::string_view kNone = "none";

// Types of quantizers for weights of any kind: neither ternary ones nor float4, which a name chooses.
bool is_general_type(const Scheme& scheme, bool with_importance) {
  const BlockFormat& type = block_format(*scheme.weights.blocks);
  if (find_type_scheme(type.name) != &scheme) return false;
  if (!type.name.starts_with("Q") && !type.name.starts_with("IQ")) return false;
  constexpr std::string_view kAnyMatrix = "blk.0.ffn_up.weight";
  return with_importance || scheme.mix == nullptr || !needs_matrix(*scheme.mix, kAnyMatrix, type.name);
}

bool is_group_integer(const Scheme& scheme) {
  const OperandScheme& weights = scheme.weights;
  return !weights.element && !weights.blocks && weights.mapping == IntMapping::symmetric &&
         weights.sharing == ScaleSharing::group && weights.bits >= 2 && weights.bits <= 8;
}

bool is_run(const Scheme& scheme, const ExportFormat& format, const FolderReader* reader) {
  return std::ranges::any_of(folder_readers(), [&](const FolderReader& one) {
    return (reader == nullptr || reader == &one) && one.reads(format) &&
           !reader_verdict(one, format, {.scheme = &scheme}).fails();
  });
}

std::vector<const Scheme*> all_candidates(const ExportFormat& format, const FolderReader* reader,
                                          bool with_importance) {
  std::vector<const Scheme*> candidates;
  for (const Scheme& scheme : scheme_table()) {
    if (scheme.inputs || !format.problem(scheme).empty() || !is_run(scheme, format, reader)) continue;
    if (scheme.weights.blocks ? is_general_type(scheme, with_importance) : is_group_integer(scheme))
      candidates.push_back(&scheme);
  }
  candidates.push_back(nullptr);
  return candidates;
}

}  // namespace

std::vector<const Scheme*> candidate_schemes(std::string_view names, const ExportFormat& format,
                                             const FolderReader* reader, bool with_importance, std::string_view key) {
  std::vector<const Scheme*> candidates;
  if (names.empty()) {
    candidates = all_candidates(format, reader, with_importance);
    QUENCH_CHECK_AS(ErrorCode::bad_config, candidates.size() > 1,
                    "format {} has no schemes to choose from by a budget: use gguf, compressed-tensors or torchao",
                    format.name);
    return candidates;
  }
  while (true) {
    const std::size_t comma = names.find(',');
    const std::string_view name = names.substr(0, comma);
    const Scheme* scheme = name == kNone ? nullptr : &require_layer_scheme(name, key);
    QUENCH_CHECK_AS(ErrorCode::bad_config, scheme == nullptr || !scheme->inputs,
                    "{} '{}' quantizes inputs; a budget chooses among weight-only schemes", key, name);
    if (scheme != nullptr) check_format_and_scheme(format, scheme);
    if (std::ranges::find(candidates, scheme) == candidates.end()) candidates.push_back(scheme);
    if (comma == std::string_view::npos) break;
    names.remove_prefix(comma + 1);
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  std::ranges::any_of(candidates, [](const Scheme* scheme) { return scheme != nullptr; }),
                  "{} '{}' names no scheme to choose", key, kNone);
  return candidates;
}

}  // namespace quench
