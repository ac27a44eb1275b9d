#include "recipes/qat/fake_quantizer.h"

#include <algorithm>
#include <span>

#include "core/ops/quantize/fake_quantize_float8.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/quantize/round_gguf.h"
#include "core/ops/quantize/round_mx.h"
#include "core/ops/quantize/round_nvfp4.h"
#include "core/ops/quantize/sparsity_2_4.h"
#include "core/ops/quantize/weight_grids.h"

namespace quench::recipes {
namespace {

// Group sizes suggested in errors: smaller ones spend more on scales than they save, larger ones suit few formats.
constexpr std::int64_t kLeastNamedGroup = 8;
constexpr std::int64_t kMostNamedGroup = 256;

void round_under_own_scale(const Tensor& x, const Tensor& out) {
  round_nvfp4({.x = x, .global_scale = nvfp4_global_scale(amax(x, Granularity::tensor)), .out = out});
}

// Parts of one type at once, where all have it.
void round_gguf_rows(const Tensor& x, const FakeFormat& format, const Tensor& out) {
  const std::span parts(format.gguf.data(), format.gguf_parts);
  const auto is_alike = [&](const GgufRows& part) { return !part.is_whole && part.type == parts.front().type; };
  if (std::ranges::all_of(parts, is_alike)) return round_gguf({.x = x, .type = parts.front().type, .out = out});
  for (std::int64_t row = 0; row < x.size(0);)
    for (const GgufRows& part : parts) {
      const Tensor rows = x.narrow(0, row, part.rows);
      Tensor rounded = out.narrow(0, row, part.rows);
      if (part.is_whole)
        rounded.copy_from(rows);
      else
        round_gguf({.x = rows, .type = part.type, .out = rounded});
      row += part.rows;
    }
}

}  // namespace

std::string FakeFormat::describe() const {
  if (kind == Kind::integer)
    return fmt::format("{} {}",
                       has_few_levels(integers.mapping) ? std::string(grid_name(integers.mapping))
                                                        : fmt::format("int{}", integers.bits),
                       integers.group_size > 0 ? fmt::format("in groups of {}", integers.group_size) : "by row");
  std::string text;
  std::string_view before;
  for (std::size_t i = 0; i < gguf_parts; ++i) {
    const std::string_view name = gguf[i].is_whole ? "high precision" : block_format(gguf[i].type).name;
    if (name != before) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
    before = name;
  }
  return text;
}

std::optional<FakeFormat::Problem> FakeFormat::problem(std::int64_t rows, std::int64_t columns,
                                                       std::string_view key) const {
  if (sparsity)
    if (std::string reason = sparsity_2_4_problem(*sparsity, rows, columns); !reason.empty()) return Problem{reason};
  const std::int64_t block = kind == Kind::mx      ? std::int64_t{kMxBlockSize}
                             : kind == Kind::nvfp4 ? std::int64_t{kNvfp4BlockSize}
                                                   : 0;
  if (block > 0 && columns % block != 0)
    return Problem{fmt::format("blocks of {} do not divide its {} inputs", block, columns)};
  for (std::size_t i = 0; i < gguf_parts; ++i)
    if (const BlockFormat& format = block_format(gguf[i].type); !gguf[i].is_whole && columns % format.elements != 0)
      return Problem{
          fmt::format("blocks of {} ({}) do not divide its {} inputs", format.elements, format.name, columns)};
  const std::int64_t group = kind == Kind::integer ? integers.group_size : 0;
  if (group == 0 || columns % group == 0) return std::nullopt;
  std::string fitting;
  for (std::int64_t size = kLeastNamedGroup; size <= std::min(columns, kMostNamedGroup); ++size)
    if (columns % size == 0) fitting += fmt::format("{}, ", size);
  return Problem{fmt::format("{} {} does not divide its {} inputs; {}0 (the whole row) would fit", key, group, columns,
                             fitting.empty() ? "" : fitting.replace(fitting.size() - 2, 2, " and ")),
                 key};
}

FakeQuantized fake_quantize(const Tensor& dense, const FakeFormat& format, bool with_mask, const Tensor& scales) {
  const Tensor x = format.sparsity ? pruned_2_4(dense, *format.sparsity) : dense;
  using Kind = FakeFormat::Kind;
  switch (format.kind) {
    case Kind::none: break;
    case Kind::integer: {
      FakeQuantized made{Tensor::empty_like(x), {}};
      if (with_mask) made.mask = Tensor::empty(range_mask_shape(x.shape()), DType::u8, x.device());
      fake_quantize_int({.x = x,
                         .out = made.values,
                         .mask = made.mask,
                         .scales = scales,
                         .zero_points = {},
                         .options = format.integers});
      return made;
    }
    case Kind::float8: {
      FakeQuantized made{Tensor::empty_like(x), {}};
      fake_quantize_float8({.x = x, .amax = {}, .out = made.values, .scale_dtype = x.dtype()});
      return made;
    }
    case Kind::mx: {
      FakeQuantized made{Tensor::empty_like(x), {}};
      round_mx({.x = x, .out = made.values, .element = format.element});
      return made;
    }
    case Kind::nvfp4: {
      FakeQuantized made{Tensor::empty_like(x), {}};
      round_under_own_scale(x, made.values);
      return made;
    }
    case Kind::gguf: {
      FakeQuantized made{Tensor::empty_like(x), {}};
      round_gguf_rows(x, format, made.values);
      return made;
    }
  }
  return {x, {}};
}

FakeQuantized fake_quantize_each(const Tensor& x, std::int64_t matrices, const FakeFormat& format, bool with_mask) {
  // Formats with a mask scale per row.
  if (matrices == 1 || format.kind != FakeFormat::Kind::nvfp4) return fake_quantize(x, format, with_mask);
  const Tensor values = Tensor::empty_like(x);
  const std::int64_t rows = x.size(0) / matrices;
  for (std::int64_t i = 0; i < matrices; ++i) {
    const Tensor dense = x.narrow(0, i * rows, rows);
    round_under_own_scale(format.sparsity ? pruned_2_4(dense, *format.sparsity) : dense,
                          values.narrow(0, i * rows, rows));
  }
  return {values, {}};
}

void stop_gradient(const Tensor& dx, const Tensor& mask) {
  if (mask.defined()) zero_masked({dx, mask});
}

}  // namespace quench::recipes
