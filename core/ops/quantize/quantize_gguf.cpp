#include "core/ops/quantize/quantize_gguf.h"

#include <algorithm>
#include <cmath>

#include "core/gguf_types/block_tensors.h"
#include "core/ops/quantize/round_gguf.h"
#include "core/tensor/op_checks.h"

namespace quench {
namespace {

void check_importance(std::span<const float> importance, std::int64_t columns, std::string_view name) {
  if (importance.empty()) return;
  QUENCH_CHECK_AS(ErrorCode::invalid_argument, static_cast<std::int64_t>(importance.size()) == columns,
                  "{} has {} columns, its importance {}", name, columns, importance.size());
  const auto bad = std::ranges::find_if(importance, [](float value) { return !(value >= 0 && std::isfinite(value)); });
  QUENCH_CHECK_AS(ErrorCode::invalid_argument, bad == importance.end(),
                  "{}: importance {} of column {} is negative or not finite", name, *bad, bad - importance.begin());
}

void require_finite_scales(const Tensor& blocks, const BlockFormat& format, const Tensor& weight,
                           std::string_view name) {
  const auto bad = find_bad_block(blocks, format);
  if (!bad) return;
  dispatch<float, bfloat16>(weight.dtype(), "quantize_blocks", [&]<class T>() {
    std::int64_t at = bad->column;
    const auto value = [&](std::int64_t i) {
      return static_cast<float>(weight.data<T>()[bad->row * weight.size(1) + i]);
    };
    for (std::int64_t i = at; i < bad->column + format.elements; ++i)
      if (std::abs(value(i)) > std::abs(value(at))) at = i;
    QUENCH_FAIL(ErrorCode::nonfinite,
                "{} holds {} at [{}, {}], for which the scale of a {} block overflows; use mxfp4_weight_only, or "
                "exclude the layer",
                name, value(at), bad->row, at, format.name);
  });
}

}  // namespace

constinit KernelSlot<QuantizeGgufArgs> quantize_gguf_slot("quantize_gguf");

void quantize_gguf(const QuantizeGgufArgs& args) {
  constexpr std::string_view op = "quantize_gguf";
  const BlockFormat& format = block_format(args.type);
  check_gguf_rows(op, args.x, args.type, args.importance);
  check_tensor(op, "blocks", args.blocks, {args.x.size(0), args.x.size(1) / format.elements * format.bytes}, DType::u8);
  check_contiguous(op, "blocks", args.blocks);
  check_same_device(op, {&args.x, &args.importance, &args.blocks});
  if (args.x.numel() > 0) quantize_gguf_slot(args.x.device().type, args);
}

Tensor quantize_blocks(const Tensor& weight, BlockType type, std::string_view name, std::span<const float> importance,
                       Device device) {
  const BlockFormat& format = block_format(type);
  const std::int64_t rows = weight.size(0), columns = weight.size(1);
  check_importance(importance, columns, name);
  Tensor factors;
  if (!importance.empty()) factors = Tensor::from_values<float>({columns}, importance);
  const Tensor blocks = Tensor::empty({rows, columns / format.elements * format.bytes}, DType::u8);
  if (device.is_cpu() || !can_round_gguf(type, device.type)) {
    quantize_gguf({.x = weight, .type = type, .importance = factors, .blocks = blocks});
  } else {
    constexpr std::int64_t kPiece = std::int64_t{512} << 20;
    const MemoryScope scope(MemoryCategory::workspace);
    if (factors.defined()) factors = factors.to(device);
    const std::int64_t row_bytes = columns * byte_size(weight.dtype()) + blocks.size(1);
    const std::int64_t piece = std::max<std::int64_t>(kPiece / std::max<std::int64_t>(row_bytes, 1), 1);
    for (std::int64_t row = 0; row < rows; row += piece) {
      const std::int64_t count = std::min(piece, rows - row);
      const Tensor out = Tensor::empty({count, blocks.size(1)}, DType::u8, device);
      quantize_gguf({weight.narrow(0, row, count).to(device), type, factors, out});
      blocks.narrow(0, row, count).copy_from(out);
    }
  }
  require_finite_scales(blocks, format, weight, name);
  return blocks;
}

}  // namespace quench
