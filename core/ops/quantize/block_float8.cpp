#include "core/ops/quantize/block_float8.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<BlockFloat8CastArgs> block_float8_cast_slot("block_float8_cast");
constinit KernelSlot<BlockFloat8ValuesArgs> block_float8_values_slot("block_float8_values");

namespace {

// Length is K.
struct Lines {
  std::int64_t count, length;
  Lines(const Shape& shape, Orientation orientation) : count(shape[-2]), length(shape[-1]) {
    if (orientation == Orientation::transposed) std::swap(count, length);
  }
};

BlockFloat8 quantize(std::string_view op, const Tensor& x, Orientation orientation, bool squares) {
  check_float_tensor(op, "x", x, squares ? 3 : 2);
  check_contiguous(op, "x", x);
  const Lines lines(x.shape(), orientation);
  const std::int64_t blocks = float8_blocks(lines.length), length = blocks * kFloat8Block;
  const BlockFloat8 out{
      Tensor::empty(squares ? Shape{x.size(0), lines.count, length} : Shape{lines.count, length}, DType::f8_e4m3,
                    x.device()),
      Tensor::empty(squares ? Shape{x.size(0), float8_blocks(lines.count), blocks} : Shape{blocks, lines.count},
                    DType::f32, x.device())};
  if (out.codes.numel() > 0)
    block_float8_cast_slot(x.device().type, {.x = x, .out = out, .orientation = orientation, .squares = squares});
  return out;
}

}  // namespace

BlockFloat8 quantize_block_lines(const Tensor& x, Orientation orientation) {
  return quantize("quantize_block_lines", x, orientation, false);
}

BlockFloat8 quantize_block_squares(const Tensor& x, Orientation orientation) {
  return quantize("quantize_block_squares", x, orientation, true);
}

void block_float8_values(const BlockFloat8ValuesArgs& args) {
  constexpr std::string_view op = "block_float8_values";
  const Tensor &codes = args.x.codes, &scales = args.x.scales, &out = args.out;
  const int rank = codes.rank();
  check_tensor(op, "out", out, out.shape(), DType::f32);
  check_contiguous(op, "out", out);
  QUENCH_CHECK(codes.defined() && (rank == 2 || rank == 3) && out.rank() == rank, "{}: {} of codes {}", op,
               out.describe(), codes.describe());
  const Lines lines(out.shape(), args.orientation);
  const std::int64_t blocks = float8_blocks(lines.length), length = blocks * kFloat8Block;
  check_tensor(op, "codes", codes, rank == 3 ? Shape{out.size(0), lines.count, length} : Shape{lines.count, length},
               DType::f8_e4m3);
  check_tensor(op, "scales", scales,
               rank == 3 ? Shape{out.size(0), float8_blocks(lines.count), blocks} : Shape{blocks, lines.count},
               DType::f32);
  check_contiguous(op, "codes", codes);
  check_contiguous(op, "scales", scales);
  check_same_device(op, {&codes, &scales, &out});
  if (out.numel() > 0) block_float8_values_slot(out.device().type, args);
}

}  // namespace quench
