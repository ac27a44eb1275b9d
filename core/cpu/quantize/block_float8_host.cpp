// Block-scaled float8 by 128x128 tiles, lines as rows.

#include "core/cpu/quantize/quantize_common.h"
#include "core/number/float8.h"
#include "core/ops/quantize/block_float8.h"

namespace quench {
namespace {

struct LineLayout {
  std::int64_t batch = 1, lines, length;  // lines per matrix, elements per line
  std::int64_t line_step, step;           // between lines, within a line
  LineLayout(const Shape& shape, Orientation orientation)
      : lines(shape[-2]), length(shape[-1]), line_step(shape[-1]), step(1) {
    if (shape.rank() == 3) batch = shape[0];
    if (orientation == Orientation::natural) return;
    std::swap(lines, length);
    std::swap(line_step, step);
  }
};

struct Tile {
  float values[kFloat8Block][kFloat8Block];
};

// Zero-filled out of bounds.
template <class T>
void load_tile(const T* matrix, const LineLayout& at, std::int64_t line, std::int64_t first, Tile& tile) {
  const std::int64_t lines = std::min(kFloat8Block, at.lines - line),
                     length = std::min(kFloat8Block, at.length - first);
  if (lines < kFloat8Block || length < kFloat8Block) tile = {};
  const T* from = matrix + line * at.line_step + first * at.step;
  if (at.step == 1) {
    for (std::int64_t l = 0; l < lines; ++l)
      for (std::int64_t k = 0; k < length; ++k) tile.values[l][k] = static_cast<float>(from[l * at.line_step + k]);
  } else {
    for (std::int64_t k = 0; k < length; ++k)
      for (std::int64_t l = 0; l < lines; ++l) tile.values[l][k] = static_cast<float>(from[k * at.step + l]);
  }
}

void encode_line(const float* line, float scale, std::uint8_t* out) {
  for (std::int64_t k = 0; k < kFloat8Block; ++k) out[k] = E4m3::encode(line[k] * scale);
}

template <class T>
void cast_tile(const BlockFloat8CastArgs& args, const LineLayout& at, std::int64_t matrix, std::int64_t line,
               std::int64_t block) {
  Tile tile;
  load_tile(args.x.data<T>() + matrix * at.lines * at.length, at, line, block * kFloat8Block, tile);
  const std::int64_t blocks = float8_blocks(at.length), lines = std::min(kFloat8Block, at.lines - line);
  auto* codes = static_cast<std::uint8_t*>(args.out.codes.raw_data()) +
                ((matrix * at.lines + line) * blocks + block) * kFloat8Block;
  float* scales = args.out.scales.data<float>();
  if (args.squares) {
    const float scale =
        float8_scale(magnitude_value(max_magnitude(tile.values[0], kFloat8Block * kFloat8Block)), E4m3::kMax, false);
    for (std::int64_t l = 0; l < lines; ++l) encode_line(tile.values[l], scale, codes + l * blocks * kFloat8Block);
    scales[(matrix * float8_blocks(at.lines) + line / kFloat8Block) * blocks + block] = 1.0f / scale;
    return;
  }
  for (std::int64_t l = 0; l < lines; ++l) {
    const float scale = float8_scale(magnitude_value(max_magnitude(tile.values[l], kFloat8Block)), E4m3::kMax, false);
    encode_line(tile.values[l], scale, codes + l * blocks * kFloat8Block);
    scales[block * at.lines + line + l] = 1.0f / scale;
  }
}

void block_float8_cast_cpu(const BlockFloat8CastArgs& args) {
  const LineLayout at(args.x.shape(), args.orientation);
  const std::int64_t blocks = float8_blocks(at.length), line_blocks = float8_blocks(at.lines);
  dispatch<float, bfloat16>(args.x.dtype(), "block_float8_cast", [&]<class T>() {
#pragma omp parallel for collapse(3) schedule(static) if (args.x.numel() >= kParallelElements)
    for (std::int64_t matrix = 0; matrix < at.batch; ++matrix)
      for (std::int64_t l = 0; l < line_blocks; ++l)
        for (std::int64_t block = 0; block < blocks; ++block) cast_tile<T>(args, at, matrix, l * kFloat8Block, block);
  });
}

void block_float8_values_cpu(const BlockFloat8ValuesArgs& args) {
  const LineLayout at(args.out.shape(), args.orientation);
  const bool squares = args.out.rank() == 3;
  const std::int64_t blocks = float8_blocks(at.length), line_blocks = float8_blocks(at.lines);
  const auto* codes = static_cast<const std::uint8_t*>(args.x.codes.raw_data());
  const float* scales = args.x.scales.data<float>();
  float* out = args.out.data<float>();
#pragma omp parallel for collapse(2) schedule(static) if (args.out.numel() >= kParallelElements)
  for (std::int64_t matrix = 0; matrix < at.batch; ++matrix)
    for (std::int64_t line = 0; line < at.lines; ++line) {
      const std::uint8_t* from = codes + (matrix * at.lines + line) * blocks * kFloat8Block;
      float* to = out + matrix * at.lines * at.length + line * at.line_step;
      for (std::int64_t k = 0; k < at.length; ++k) {
        const std::int64_t block = k / kFloat8Block;
        const float scale = squares ? scales[(matrix * line_blocks + line / kFloat8Block) * blocks + block]
                                    : scales[block * at.lines + line];
        to[k * at.step] = E4m3::decode(from[k]) * scale;
      }
    }
}

QUENCH_CPU_KERNEL(block_float8_cast_slot, block_float8_cast_cpu);
QUENCH_CPU_KERNEL(block_float8_values_slot, block_float8_values_cpu);

}  // namespace
}  // namespace quench
