#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

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

// GGUF stores other schemes in blocks of more bits.
bool stores_own_bits(const Scheme& scheme, const ExportFormat& format) {
  return format.weights_file.empty() || scheme.weights.blocks.has_value();
}

std::vector<const Scheme*> all_candidates(const ExportFormat& format, const FolderReader* reader,
                                          bool with_importance) {
  std::vector<const Scheme*> candidates;
  for (const Scheme& scheme : scheme_table()) {
    if (scheme.inputs || !stores_own_bits(scheme, format) || !format.problem(scheme).empty() ||
        !is_run(scheme, format, reader))
      continue;
    if (scheme.weights.blocks ? is_general_type(scheme, with_importance) : is_group_integer(scheme))
      candidates.push_back(&scheme);
  }
  candidates.push_back(nullptr);
  return candidates;
}

}  // namespace

std::optional<std::int64_t> parse_file_size(std::string_view text) noexcept {
  static constexpr std::array<std::pair<std::string_view, double>, 6> kUnits{
      {{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}}};
  constexpr double kMostBytes = 0x1p60;
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, bytes] : kUnits)
    if (unit == name && number * bytes >= 1 && number * bytes <= kMostBytes)
      return static_cast<std::int64_t>(number * bytes);
  return std::nullopt;
}

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
    QUENCH_CHECK_AS(ErrorCode::bad_config, !name.empty(),
                    "{}: expected names of schemes with commas between them, got one that is empty", key);
    const Scheme* scheme = name == kNone ? nullptr : &require_layer_scheme(name, key);
    QUENCH_CHECK_AS(ErrorCode::bad_config, scheme == nullptr || !scheme->inputs,
                    "{} '{}' quantizes inputs; a budget chooses among weight-only schemes", key, name);
    if (scheme != nullptr) check_format_and_scheme(format, scheme);
    QUENCH_CHECK_AS(ErrorCode::bad_config, scheme == nullptr || stores_own_bits(*scheme, format),
                    "{} '{}' is stored in blocks of more bits by format {}; a budget chooses among its own types, such "
                    "as q4_0 and q6_k",
                    key, name, format.name);
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
