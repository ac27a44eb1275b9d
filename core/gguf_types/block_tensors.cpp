#include "core/gguf_types/block_tensors.h"

#include <algorithm>
#include <cmath>

#include "core/number/float4.h"

namespace quench {
namespace {

// A scale or offset of a block that is not finite.
std::optional<float> bad_scale(const BlockFormat& format, const UnpackedBlock& codes) {
  for (std::int64_t g = 0; g < format.elements / format.packed.group; ++g) {
    if (!std::isfinite(codes.scales[g])) return codes.scales[g];
    if (format.packed.offsets && !std::isfinite(codes.offsets[g])) return codes.offsets[g];
  }
  return std::nullopt;
}

}  // namespace

std::optional<BadBlock> find_bad_block(const Tensor& blocks, const BlockFormat& format) {
  const std::int64_t count = blocks.numel() / format.bytes, per_row = blocks.size(1) / format.bytes;
  const auto scale_of = [&](std::int64_t i) {
    UnpackedBlock codes;
    format.unpack(blocks.data<std::uint8_t>() + i * format.bytes, codes);
    return bad_scale(format, codes);
  };
  std::int64_t first = count;
#pragma omp parallel for schedule(static) reduction(min : first)
  for (std::int64_t i = 0; i < count; ++i)
    if (scale_of(i)) first = std::min(first, i);
  if (first == count) return std::nullopt;
  return BadBlock{first / per_row, first % per_row * format.elements, *scale_of(first)};
}

PackedMatrix pack_blocks(const Tensor& blocks, BlockType type, std::int64_t columns, std::string_view source) {
  const BlockFormat& format = block_format(type);
  const PackedForm& form = format.packed;
  const std::int64_t rows = blocks.size(0), count = columns / format.elements;
  check_tensor("pack_blocks", "blocks", blocks, {rows, count * format.bytes}, DType::u8);
  if (const auto bad = find_bad_block(blocks, format))
    QUENCH_FAIL(ErrorCode::corrupt,
                "{}: the {} block at [{}, {}] has the scale {}; download the model again, or convert it again from "
                "weights that are finite in f16",
                source, format.name, bad->row, bad->column, bad->scale);
  const MemoryScope scope(MemoryCategory::parameters);
  const Tensor codes = Tensor::empty({rows, columns}, form.codes);
  const Tensor wide = Tensor::empty({rows, columns / form.group}, DType::f32);
  const Tensor offsets = form.offsets ? Tensor::empty(wide.shape(), DType::f32) : Tensor();
  const std::int64_t bits = bit_width(form.codes), groups = columns / form.group, each = format.elements / form.group;
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t b = 0; b < count; ++b) {
      UnpackedBlock in;
      format.unpack(blocks.data<std::uint8_t>() + (row * count + b) * format.bytes, in);
      auto* to = static_cast<std::uint8_t*>(codes.raw_data()) + (row * columns + b * format.elements) * bits / 8;
      const auto code = [&](std::int64_t i) { return static_cast<std::uint8_t>(in.codes[i] - form.bias); };
      for (std::int64_t i = 0; i < format.elements * bits / 8; ++i)
        to[i] = bits == 8 ? code(i) : pack_nibbles(code(2 * i), code(2 * i + 1));
      for (std::int64_t g = 0; g < each; ++g) {
        wide.data<float>()[row * groups + b * each + g] = in.scales[g];
        if (form.offsets)
          offsets.data<float>()[row * groups + b * each + g] =
              in.offsets[g] + static_cast<float>(form.bias) * in.scales[g];
      }
    }
  Tensor scales = wide;
  if (form.scales != DType::f32) {
    scales = Tensor::empty(wide.shape(), form.scales);
    dispatch<float16, bfloat16>(form.scales, "pack_blocks", [&]<class T>() {
      std::transform(wide.data<float>(), wide.data<float>() + wide.numel(), scales.data<T>(),
                     [](float scale) { return T(scale); });
    });
  }
  return {form.group, codes, scales, offsets};
}

}  // namespace quench
