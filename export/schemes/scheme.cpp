#include "export/schemes/scheme.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "core/ops/quantize/quantize.h"
#include "core/ops/quantize/weight_grids.h"
#include "core/system/check.h"
#include "core/system/choice_table.h"
#include "export/mixes/tensor_types.h"
#include "export/schemes/scheme_hint.h"

namespace quench {
namespace {

constexpr std::array<std::int64_t, 4> kGroups = {0, 32, 64, 128};  // 0: per row
constexpr std::array<std::int64_t, 5> kFewLevelGroups = {0, 32, 64, 128, 256};

OperandScheme integers(int bits, std::int64_t group, IntMapping mapping = IntMapping::symmetric) {
  return {.bits = bits,
          .mapping = mapping,
          .sharing = group > 0 ? ScaleSharing::group : ScaleSharing::row,
          .group_size = group};
}

OperandScheme float8(ScaleSharing sharing, std::int64_t group = 0) {
  return {.element = ElementFormat::e4m3, .bits = 8, .sharing = sharing, .group_size = group};
}

OperandScheme mx(ElementFormat element, int bits) {
  return {.element = element,
          .bits = bits,
          .sharing = ScaleSharing::group,
          .group_size = kMxBlockSize,
          .scale = ScaleForm::e8m0};
}

OperandScheme nvfp4() {
  return {.element = ElementFormat::e2m1,
          .bits = 4,
          .sharing = ScaleSharing::group,
          .group_size = kNvfp4BlockSize,
          .scale = ScaleForm::e4m3_two_level};
}

std::string sharing_text(std::int64_t group) {
  return group > 0 ? fmt::format("groups of {}", group) : "rows";
}

void add_integers(std::vector<Scheme>& table) {
  for (int bits = 1; bits <= 8; ++bits)
    for (const std::int64_t group : kGroups) {
      const std::string suffix = group > 0 ? fmt::format("_g{}", group) : "";
      // 1 bit: -1 and 0.
      if (bits > 1)
        table.push_back({fmt::format("int{}_weight_only{}", bits, suffix),
                         fmt::format("{}-bit integers, a scale for {}", bits, sharing_text(group)),
                         integers(bits, group), std::nullopt});
      table.push_back({fmt::format("int{}_weight_only{}_asym", bits, suffix),
                       fmt::format("{}-bit integers, scale and zero point for {}", bits, sharing_text(group)),
                       integers(bits, group, IntMapping::asymmetric), std::nullopt});
    }
  const OperandScheme token = integers(8, 0);
  table.push_back(
      {"int8dyn_int8", "8-bit integers, a scale for rows; inputs as 8-bit integers by token", integers(8, 0), token});
  for (int bits = 2; bits <= 8; ++bits)
    for (const std::int64_t group : kGroups)
      table.push_back({fmt::format("int8dyn_int{}_{}", bits, group > 0 ? fmt::format("g{}", group) : "row"),
                       fmt::format("{}-bit integers, a scale for {}; inputs as 8-bit integers with a zero point by "
                                   "token",
                                   bits, sharing_text(group)),
                       integers(bits, group), integers(8, 0, IntMapping::asymmetric)});
}

// Codes of few levels, stored as integers without zero points.
void add_few_levels(std::vector<Scheme>& table) {
  for (const WeightGrid& grid : few_level_grids())
    for (const std::int64_t group : kFewLevelGroups) {
      const OperandScheme weights = integers(stored_bits(grid.mapping), group, grid.mapping);
      const std::string text = fmt::format("{}, a scale s for {}", grid.summary, sharing_text(group));
      table.push_back({fmt::format("{}_weight_only{}", grid.name, group > 0 ? fmt::format("_g{}", group) : ""), text,
                       weights, std::nullopt});
      table.push_back({fmt::format("int8dyn_{}_{}", grid.name, group > 0 ? fmt::format("g{}", group) : "row"),
                       text + "; inputs as 8-bit integers with a zero point by token", weights,
                       integers(8, 0, IntMapping::asymmetric)});
    }
}

// "Q4_K" as "q4_k".
std::string scheme_of_type(std::string_view type) {
  std::string name(type);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name == "mxfp4" ? "mxfp4_gguf" : name;  // the other has the same values
}

const BlockFormat* written_type(std::string_view type) {
  for (const BlockFormat& format : block_formats())
    if (format.name == type && format.quantize != nullptr) return &format;
  return nullptr;
}

void add_gguf_types(std::vector<Scheme>& table) {
  for (const BlockFormat& format : block_formats()) {
    if (format.quantize == nullptr) continue;
    const std::string name = scheme_of_type(format.name);
    const int bits = static_cast<int>(format.bytes * 8 / format.elements);
    table.push_back({name,
                     fmt::format("blocks of {} elements of GGUF, {:.2f} bits an element", format.elements,
                                 static_cast<double>(format.bytes * 8) / static_cast<double>(format.elements)),
                     {.bits = bits, .blocks = format.type},
                     std::nullopt,
                     find_gguf_mix(name)});
  }
}

// Mixes whose types are all written, and that are no type's scheme.
void add_mixes(std::vector<Scheme>& table) {
  for (const GgufMix& mix : gguf_mixes()) {
    const bool written = written_type(mix.main) != nullptr && written_type(mix.head) != nullptr &&
                         (mix.table.empty() || written_type(mix.table) != nullptr) &&
                         std::ranges::all_of(mix.rules, [](const MixRule& rule) { return written_type(rule.type); });
    if (!written || std::ranges::find(table, mix.name, &Scheme::name) != table.end()) continue;
    const BlockFormat& main = *written_type(mix.main);
    table.push_back({std::string(mix.name),
                     fmt::format("llama.cpp's mix {} of GGUF types, mostly {}", mix.title, mix.main),
                     {.bits = static_cast<int>(main.bytes * 8 / main.elements), .blocks = main.type},
                     std::nullopt,
                     &mix});
  }
}

std::vector<Scheme> make_table() {
  std::vector<Scheme> table;
  add_integers(table);
  add_few_levels(table);
  using enum ScaleSharing;
  table.push_back({"float8_weight_only", "float8, a scale for rows", float8(row), std::nullopt});
  table.push_back({"float8_weight_only_tensor", "float8, a scale for the tensor", float8(tensor), std::nullopt});
  table.push_back({"float8_dynamic", "float8, a scale for rows; inputs in float8 by token", float8(row), float8(row)});
  table.push_back({"float8_dynamic_tensor", "float8, a scale for the tensor; inputs in float8 by token", float8(tensor),
                   float8(row)});
  table.push_back({"float8_dynamic_block", "float8, a scale for 128 x 128 elements; inputs in float8 by groups of 128",
                   float8(block, 128), float8(group, 128)});
  const auto calibrated = [](OperandScheme inputs) {
    inputs.calibrated = true;
    return inputs;
  };
  table.push_back({"float8_static", "float8, a scale for the tensor; inputs in float8 under a calibrated scale",
                   float8(tensor), calibrated(float8(tensor))});
  OperandScheme int8_tensor = integers(8, 0);
  int8_tensor.sharing = tensor;
  table.push_back({"int8static_int8",
                   "8-bit integers, a scale for rows; inputs as 8-bit integers under a calibrated "
                   "scale",
                   integers(8, 0), calibrated(int8_tensor)});
  for (const std::int64_t size : {32, 64, 128})
    table.push_back({fmt::format("float8dyn_int4_g{}", size),
                     fmt::format("4-bit integers, a scale for groups of {}; inputs in float8 by token", size),
                     integers(4, size), float8(row)});
  table.push_back(
      {"mxfp8", "MX float8 in blocks of 32, inputs too", mx(ElementFormat::e4m3, 8), mx(ElementFormat::e4m3, 8)});
  table.push_back({"mxfp8_weight_only", "MX float8 in blocks of 32", mx(ElementFormat::e4m3, 8), std::nullopt});
  table.push_back({"mxfp6_weight_only", "MX float6 (e2m3) in blocks of 32", mx(ElementFormat::e2m3, 6), std::nullopt});
  table.push_back(
      {"mxfp4", "MX float4 in blocks of 32, inputs too", mx(ElementFormat::e2m1, 4), mx(ElementFormat::e2m1, 4)});
  table.push_back({"mxfp6", "MX float6 (e2m3) in blocks of 32, inputs too", mx(ElementFormat::e2m3, 6),
                   mx(ElementFormat::e2m3, 6)});
  table.push_back({"mxfp4_weight_only", "MX float4 in blocks of 32", mx(ElementFormat::e2m1, 4), std::nullopt});
  table.push_back(
      {"nvfp4_weight_only", "NVFP4: float4 in blocks of 16 with two levels of scales", nvfp4(), std::nullopt});
  table.push_back({"nvfp4", "NVFP4, inputs too, whose second scale is calibrated", nvfp4(), nvfp4()});
  add_gguf_types(table);
  add_mixes(table);
  return table;
}

}  // namespace

bool needs_input_scale(const OperandScheme& inputs) noexcept {
  return inputs.calibrated || inputs.scale == ScaleForm::e4m3_two_level;
}

float input_scale(const OperandScheme& inputs, float amax) noexcept {
  if (inputs.scale == ScaleForm::e4m3_two_level) return quench::nvfp4_global_scale(amax);
  const IntRange range = int_range(inputs.bits);
  const float most = inputs.element ? E4m3::kMax : static_cast<float>(range.highest - range.lowest) / 2;
  return stored_scale(amax / most, DType::f32);
}

std::span<const Scheme> scheme_table() {
  static const TableEntries<Scheme> table("scheme", make_table());
  return table.all();
}

const Scheme* find_scheme(std::string_view name) {
  const auto table = scheme_table();
  const auto found = std::ranges::find(table, name, &Scheme::name);
  return found == table.end() ? nullptr : &*found;
}

std::string scheme_names() {
  std::string names =
      "int<2-8>_weight_only[_g32|_g64|_g128][_asym], int1_weight_only[_g32|_g64|_g128]_asym, "
      "int8dyn_int<2-8>_<row|g32|g64|g128>, <binary|ternary|seq>_weight_only[_g32|_g64|_g128|_g256], "
      "int8dyn_<binary|ternary|seq>_<row|g32|g64|g128|g256>";
  for (const Scheme& scheme : scheme_table())
    if (scheme.weights.element || scheme.weights.blocks ||
        (scheme.inputs && !has_few_levels(scheme.weights.mapping) &&
         (scheme.inputs->element || (scheme.weights.group_size == 0 && scheme.inputs->symmetric()))))
      names += ", " + scheme.name;
  return names;
}

const Scheme& require_scheme(std::string_view name, std::string_view key) {
  const Scheme* scheme = find_scheme(name);
  if (scheme != nullptr) return *scheme;
  const std::string reason = missing_scheme_reason(name);
  QUENCH_CHECK_AS(ErrorCode::bad_config, reason.empty(), "{} '{}' is not a scheme: {}", key, name, reason);
  std::string similar;
  for (const std::string& other : similar_schemes(name))
    similar +=
        fmt::format("{}{} ({})", similar.empty() ? "; did you mean " : " or ", other, find_scheme(other)->summary);
  QUENCH_FAIL(ErrorCode::bad_config, "{} '{}' is unknown{}; known: {}", key, name, similar, scheme_names());
}

const Scheme& require_layer_scheme(std::string_view name, std::string_view key) {
  const Scheme& scheme = require_scheme(name, key);
  const bool whole = scheme.weights.blocks && scheme_of_type(block_format(*scheme.weights.blocks).name) != scheme.name;
  QUENCH_CHECK_AS(ErrorCode::bad_config, !whole,
                  "{} '{}' is a mix of types for a whole file; for layers, name one type, for example {}", key, name,
                  scheme_of_type(block_format(*scheme.weights.blocks).name));
  return scheme;
}

const Scheme* find_type_scheme(std::string_view type) {
  return written_type(type) != nullptr ? find_scheme(scheme_of_type(type)) : nullptr;
}

const Scheme* fitting_scheme(const Scheme& scheme, std::int64_t columns) {
  if (!scheme.weights.blocks) return &scheme;
  const BlockFormat& format = block_format(*scheme.weights.blocks);
  if (columns % format.elements == 0) return &scheme;
  const Scheme* other = find_type_scheme(fallback_type(format.name));
  return other != nullptr && columns % block_format(*other->weights.blocks).elements == 0 ? other : nullptr;
}

std::string shape_problem(const OperandScheme& weights, std::int64_t rows, std::int64_t columns,
                          const std::optional<OperandScheme>& inputs) {
  if (rows == 0 || columns == 0) return "the weight is empty";
  if (weights.blocks) {
    const std::int64_t elements = block_format(*weights.blocks).elements;
    return columns % elements == 0 ? "" : fmt::format("blocks of {} do not divide its {} inputs", elements, columns);
  }
  if (weights.sharing == ScaleSharing::group && columns % weights.group_size != 0)
    return fmt::format("groups of {} do not divide its {} inputs", weights.group_size, columns);
  if (inputs && inputs->sharing == ScaleSharing::group && columns % inputs->group_size != 0)
    return fmt::format("its inputs are quantized in groups of {}, which do not divide {}", inputs->group_size, columns);
  if (weights.element == ElementFormat::e2m3 && columns % 4 != 0)
    return fmt::format("its {} inputs are not a multiple of 4", columns);
  if (weights.bits <= 4 && columns % 2 != 0) return fmt::format("its {} inputs are odd", columns);
  return {};
}

int scheme_distance(const Scheme& a, const Scheme& b) {
  const auto group = [](const Scheme& s) {
    return s.weights.group_size > 0 ? std::log2(static_cast<double>(s.weights.group_size)) : 12.0;
  };
  int d = 40 * std::abs(a.weights.bits - b.weights.bits);
  if (a.inputs.has_value() != b.inputs.has_value()) d += 100;
  if (a.inputs && b.inputs) {
    if (a.inputs->element != b.inputs->element) d += 30;
    if (a.inputs->calibrated != b.inputs->calibrated) d += 60;
    if (a.inputs->scale != b.inputs->scale) d += 10;
    if (a.inputs->sharing != b.inputs->sharing) d += 3;
  }
  if (a.weights.element != b.weights.element) d += 25;
  if (a.weights.blocks != b.weights.blocks) d += 25;
  if (a.weights.scale != b.weights.scale) d += 20;
  if (a.weights.mapping != b.weights.mapping)
    d += has_few_levels(a.weights.mapping) || has_few_levels(b.weights.mapping) ? 60 : 15;
  if (a.weights.sharing != b.weights.sharing) d += 6;
  return d + static_cast<int>(std::abs(group(a) - group(b)));
}

double bits_per_weight(const OperandScheme& weights, std::int64_t columns) {
  if (weights.blocks) {
    const BlockFormat& format = block_format(*weights.blocks);
    return static_cast<double>(format.bytes * 8) / static_cast<double>(format.elements);
  }
  const double scale = weights.scale == ScaleForm::high_precision ? 16 : 8;
  const double zero = weights.symmetric() ? 0 : weights.bits;
  switch (weights.sharing) {
    case ScaleSharing::tensor: return weights.bits;
    case ScaleSharing::row: return weights.bits + (scale + zero) / static_cast<double>(columns);
    case ScaleSharing::group: return weights.bits + (scale + zero) / static_cast<double>(weights.group_size);
    case ScaleSharing::block: {
      const auto side = static_cast<double>(weights.group_size);
      return weights.bits + scale / (side * side);
    }
  }
  return weights.bits;
}

}  // namespace quench
