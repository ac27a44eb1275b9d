// Markdown of the reader table.

#include <algorithm>

#include "core/ops/quantize/weight_grids.h"
#include "export/table/reader_table.h"

namespace quench {
namespace {

// Verdicts of a format's readers.
std::string cells(const ExportFormat& format, const ExportedWeights& weights) {
  std::string text;
  for (const FolderReader& reader : folder_readers()) {
    if (!reader.reads(format)) continue;
    const ReaderVerdict verdict = reader_verdict(reader, format, weights);
    text += fmt::format(" {}{}{} |", to_string(verdict.result), verdict.reason.empty() ? "" : ": ", verdict.reason);
  }
  return text;
}

struct Condition {
  std::string_view text;
  DType dtype;
  ExpertStorage experts = ExpertStorage::none;
  bool embeddings = false;
};
constexpr Condition kConditions[] = {{"", DType::bf16},
                                     {"in f32", DType::f32},
                                     {"experts", DType::bf16, ExpertStorage::matrices},
                                     {"experts of Llama 4", DType::bf16, ExpertStorage::fused},
                                     {"experts of gpt-oss", DType::bf16, ExpertStorage::interleaved},
                                     {"embeddings", DType::bf16, ExpertStorage::none, true}};

// Marks in a family's name.
constexpr std::string_view kGroupMark = "*", kGridMark = "@";

// Families share the name without bits, group and grid: "int8dyn_int4_g32" is {"int8dyn_int", "4", "*", "_g32"}.
struct NameParts {
  std::string before, after;  // with marks
  int bits = 0;               // 0: none
  std::string group;          // "_g32", "_row", or ""
  std::string grid = {};      // "ternary", or ""

  [[nodiscard]] bool same_family(const NameParts& other) const {
    return before == other.before && after == other.after && (bits == 0) == (other.bits == 0);
  }
};

NameParts parts_of(const std::string& name) {
  NameParts parts;
  std::string text = name;
  for (const WeightGrid& grid : few_level_grids())
    if (const std::size_t at = text.find(fmt::format("{}_", grid.name)); at != std::string::npos) {
      parts.grid = grid.name;
      text.replace(at, grid.name.size(), kGridMark);
    }
  const bool weight_only = name.find("_weight_only") != std::string::npos;
  for (const std::string_view group : {"_g32", "_g64", "_g128", "_g256", "_row"})
    if (const std::size_t at = text.find(group); at != std::string::npos) {
      parts.group = group;
      text.replace(at, group.size(), kGroupMark);
      break;
    }
  constexpr std::string_view kWeightOnly = "_weight_only";
  if (parts.group.empty() && weight_only) text.insert(text.find(kWeightOnly) + kWeightOnly.size(), kGroupMark);
  const std::size_t integer = text.rfind("int");
  if (integer == std::string::npos || integer + 3 >= text.size())
    return {.before = text, .after = {}, .group = parts.group, .grid = parts.grid};
  parts.bits = text[integer + 3] - '0';
  parts.before = text.substr(0, integer + 3);
  parts.after = text.substr(integer + 4);
  return parts;
}

std::string ranges_of(const std::vector<int>& bits) {  // ascending
  std::string text;
  for (std::size_t i = 0; i < bits.size();) {
    std::size_t end = i + 1;
    while (end < bits.size() && bits[end] == bits[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", bits[i]);
    if (end > i + 1) text += fmt::format("-{}", bits[end - 1]);
    i = end;
  }
  return bits.size() == 1 ? text : "<" + text + ">";
}

// "`int<2-8>_weight_only[_g32|_g64|_g128]`".
std::string names_text(const std::vector<std::string>& names) {
  struct Family {
    NameParts parts;
    std::vector<int> bits;
    std::vector<std::string> groups, grids;
  };
  std::vector<Family> families;
  for (const std::string& name : names) {  // groups of equal family and bits
    NameParts parts = parts_of(name);
    const auto known = std::ranges::find_if(families, [&](const Family& family) {
      return family.parts.same_family(parts) && family.parts.bits == parts.bits && family.parts.grid == parts.grid;
    });
    if (known != families.end())
      known->groups.push_back(parts.group);
    else
      families.push_back({parts, {parts.bits}, {parts.group}, {parts.grid}});
  }
  std::vector<Family> merged;  // bits, or grids, of equal groups
  for (Family& family : families) {
    const auto known = std::ranges::find_if(merged, [&](const Family& other) {
      const bool grids = !family.parts.grid.empty();
      return (grids || family.parts.bits != 0) && grids != other.parts.grid.empty() &&
             other.parts.same_family(family.parts) && other.groups == family.groups;
    });
    if (known != merged.end() && !family.parts.grid.empty())
      known->grids.push_back(family.parts.grid);
    else if (known != merged.end())
      known->bits.push_back(family.parts.bits);
    else
      merged.push_back(std::move(family));
  }
  std::string text;
  for (const Family& family : merged) {
    std::string groups;
    bool none = false;
    for (const std::string& group : family.groups) {
      if (group.empty()) none = true;
      if (!group.empty()) groups += (groups.empty() ? "" : "\\|") + group;
    }
    if (none && !groups.empty()) groups = "[" + groups + "]";
    if (!none && family.groups.size() > 1) groups = "<" + groups + ">";
    std::string name =
        family.parts.before + (family.parts.bits == 0 ? "" : ranges_of(family.bits)) + family.parts.after;
    if (const std::size_t mark = name.find(kGroupMark); mark != std::string::npos) name.replace(mark, 1, groups);
    const std::string grids = fmt::format("{}", fmt::join(family.grids, "\\|"));
    if (const std::size_t mark = name.find(kGridMark); mark != std::string::npos)
      name.replace(mark, 1, family.grids.size() == 1 ? grids : "<" + grids + ">");
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", name);
  }
  return text;
}

// Schemes with equal cells share a row; conditions have one if they change a verdict.
void add_format(const ExportFormat& format, std::string& text) {
  std::string head = "| " + std::string(format.name) + " |", line = "|---|";
  for (const FolderReader& reader : folder_readers()) {
    if (!reader.reads(format)) continue;
    head += fmt::format(" {} {} |", reader.title, reader.release);
    line += "---|";
  }
  struct Row {
    std::string cells;
    std::string_view condition;
    std::vector<std::string> schemes;  // empty: unquantized
  };
  std::vector<Row> rows;
  const auto add = [&](const Scheme* scheme, std::string_view condition, const std::string& cells_of_row) {
    auto row = std::ranges::find_if(rows, [&](const Row& known) {
      return known.cells == cells_of_row && known.condition == condition &&
             known.schemes.empty() == (scheme == nullptr);
    });
    if (row == rows.end()) row = rows.insert(rows.end(), {cells_of_row, condition, {}});
    if (scheme != nullptr) row->schemes.push_back(scheme->name);
  };
  const auto add_all = [&](const Scheme* scheme) {
    const std::string usual = cells(format, {.scheme = scheme});
    add(scheme, "", usual);
    for (const Condition& condition : std::span(kConditions).subspan(1)) {
      if (condition.experts != ExpertStorage::none && (scheme == nullptr || !format.experts)) continue;
      if (condition.embeddings && (scheme == nullptr || scheme->inputs || !format.embeddings)) continue;
      const std::string row = cells(format, {scheme, condition.dtype, condition.experts, condition.embeddings});
      if (row != usual) add(scheme, condition.text, row);
    }
  };
  if (!format.quantized) add_all(nullptr);
  for (const Scheme& scheme : scheme_table())
    if (format.problem(scheme).empty()) add_all(&scheme);
  text += head + "\n" + line + "\n";
  for (const Row& row : rows) {
    std::string names = !row.schemes.empty() ? names_text(row.schemes)
                        : format.sparse      ? "2:4 sparse weights"
                                             : "not quantized";
    if (!row.condition.empty()) names += fmt::format(" ({})", row.condition);
    text += fmt::format("| {} |{}\n", names, row.cells);
  }
  text += "\n";
}

}  // namespace

std::string reader_reference() {
  std::string text;
  for (const ExportFormat& format : export_formats()) add_format(format, text);
  return text;
}

}  // namespace quench
