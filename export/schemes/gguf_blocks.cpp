#include "export/schemes/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <vector>

#include "core/number/bounded_code.h"
#include "core/number/e8m0.h"
#include "core/number/float4.h"
#include "core/ops/elementwise.h"
#include "export/schemes/gguf_super_blocks.h"

namespace quench {
namespace {

constexpr int kSmall = 32;

// Byte j: element j (low), j + 16 (high).
void put_nibbles(const std::uint8_t (&codes)[kSmall], std::uint8_t* out) {
  for (int j = 0; j < kSmall / 2; ++j) out[j] = pack_nibbles(codes[j], codes[j + kSmall / 2]);
}

void get_nibbles(const std::uint8_t* in, std::uint8_t (&codes)[kSmall]) {
  for (int j = 0; j < kSmall / 2; ++j) {
    codes[j] = in[j] & 0xF;
    codes[j + kSmall / 2] = in[j] >> 4;
  }
}

// Fifth bits of the elements, four bytes, above the nibbles.
void get_5_bits(const std::uint8_t* high, const std::uint8_t* low, std::uint8_t (&codes)[kSmall]) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, high, sizeof bits);
  get_nibbles(low, codes);
  for (int i = 0; i < kSmall; ++i) codes[i] = static_cast<std::uint8_t>(codes[i] | (bits >> i & 1) << 4);
}

void quantize_q8_0(const float* x, std::uint8_t* block) {
  float amax = 0;
  for (int i = 0; i < kSmall; ++i) amax = std::max(amax, std::abs(x[i]));
  const float scale = amax / 127.0f, inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  store_half(block, scale);
  for (int i = 0; i < kSmall; ++i)
    block[2 + i] = static_cast<std::uint8_t>(bounded_code(std::round(x[i] * inverse), -128, 127));
}

void quantize_q4_0(const float* x, std::uint8_t* block) {
  float largest = 0;
  for (int i = 0; i < kSmall; ++i)
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
  const float scale = largest / -8.0f, inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  store_half(block, scale);
  std::uint8_t codes[kSmall];
  for (int i = 0; i < kSmall; ++i) codes[i] = static_cast<std::uint8_t>(bounded_code(x[i] * inverse + 8.5f, 0, 15));
  put_nibbles(codes, block + 2);
}

void quantize_mxfp4(const float* x, std::uint8_t* block) {
  float amax = 0;
  for (int i = 0; i < kSmall; ++i) amax = std::max(amax, std::abs(x[i]));
  const int exponent = amax > 0 ? std::ilogb(amax) - 2 + 127 : 0;
  block[0] = static_cast<std::uint8_t>(std::clamp(exponent, 0, 254));
  const float scale = decode_e8m0(block[0]);
  std::uint8_t codes[kSmall];
  for (int i = 0; i < kSmall; ++i) {
    // Ties: the smaller value, as in ggml.
    const float magnitude = std::abs(x[i]);
    int best = 0;
    for (int code = 1; code < 8; ++code)
      if (std::abs(E2m1::decode(static_cast<std::uint8_t>(code)) * scale - magnitude) <
          std::abs(E2m1::decode(static_cast<std::uint8_t>(best)) * scale - magnitude))
        best = code;
    codes[i] = static_cast<std::uint8_t>(best | (x[i] < 0 && best != 0 ? 8 : 0));
  }
  put_nibbles(codes, block + 1);
}

constexpr std::array kFormats = {
    BlockFormat{BlockType::q8_0, "Q8_0", 8, 7, kSmall, 34, quantize_q8_0},
    BlockFormat{BlockType::q4_0, "Q4_0", 2, 2, kSmall, 18, quantize_q4_0},
    BlockFormat{BlockType::q4_1, "Q4_1", 3, 3, kSmall, 20, nullptr},
    BlockFormat{BlockType::q5_0, "Q5_0", 6, 8, kSmall, 22, nullptr},
    BlockFormat{BlockType::q5_1, "Q5_1", 7, 9, kSmall, 24, nullptr},
    BlockFormat{BlockType::q4_k, "Q4_K", 12, 14, kSuperBlock, kQ4kBytes, quantize_q4_k},
    BlockFormat{BlockType::q6_k, "Q6_K", 14, 18, kSuperBlock, kQ6kBytes, quantize_q6_k},
    BlockFormat{BlockType::mxfp4, "MXFP4", 39, 38, kSmall, 17, quantize_mxfp4},
};

// By block.
struct Filler {
  std::uint8_t* codes;
  float* scales;
  float* offsets;
  std::int64_t group;

  // Signed 4-bit or e2m1, from one per byte; `at` is even.
  void nibbles(std::int64_t at, const std::uint8_t* values, int count) const {
    for (int i = 0; i < count; i += 2) codes[(at + i) / 2] = pack_nibbles(values[i], values[i + 1]);
  }
};

void fill_block(BlockType type, const std::uint8_t* block, std::int64_t at, const Filler& out) {
  std::uint8_t codes[kSmall];
  float* scale = out.scales + at / out.group;
  switch (type) {
    case BlockType::q8_0:
      *scale = load_half(block);
      std::memcpy(out.codes + at, block + 2, kSmall);
      return;
    case BlockType::q4_0:
      *scale = load_half(block);
      get_nibbles(block + 2, codes);
      for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(code - 8);
      return out.nibbles(at, codes, kSmall);
    case BlockType::q4_1:
      *scale = load_half(block);
      out.offsets[at / out.group] = load_half(block + 2) + 8.0f * *scale;
      get_nibbles(block + 4, codes);
      for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(code - 8);
      return out.nibbles(at, codes, kSmall);
    case BlockType::q5_0:
      *scale = load_half(block);
      get_5_bits(block + 2, block + 6, codes);
      for (int i = 0; i < kSmall; ++i) out.codes[at + i] = static_cast<std::uint8_t>(codes[i] - 16);
      return;
    case BlockType::q5_1:
      *scale = load_half(block);
      out.offsets[at / out.group] = load_half(block + 2);
      get_5_bits(block + 4, block + 8, codes);
      std::memcpy(out.codes + at, codes, kSmall);
      return;
    case BlockType::mxfp4:
      *scale = decode_e8m0(block[0]);
      get_nibbles(block + 1, codes);
      return out.nibbles(at, codes, kSmall);
    case BlockType::q4_k: {
      std::uint8_t all[kSuperBlock];
      // 0 to 15 become -8 to 7, with the offset.
      unpack_q4_k(block, all, scale, out.offsets + at / out.group);
      for (std::int64_t g = 0; g < kSuperBlock / out.group; ++g) out.offsets[at / out.group + g] += 8.0f * scale[g];
      for (std::uint8_t& code : all) code = static_cast<std::uint8_t>(code - 8);
      return out.nibbles(at, all, kSuperBlock);
    }
    case BlockType::q6_k: return unpack_q6_k(block, reinterpret_cast<std::int8_t*>(out.codes) + at, scale);
  }
}

struct PackedForm {
  DType codes, scales;
  std::int64_t group;
  bool offsets;
};

PackedForm form_of(BlockType type) {
  switch (type) {
    case BlockType::q8_0: return {DType::i8, DType::f16, kSmall, false};
    case BlockType::q4_0: return {DType::i4, DType::f16, kSmall, false};
    case BlockType::q4_1: return {DType::i4, DType::f16, kSmall, true};
    case BlockType::q5_0: return {DType::i8, DType::f16, kSmall, false};
    case BlockType::q5_1: return {DType::i8, DType::f16, kSmall, true};
    case BlockType::q4_k: return {DType::i4, DType::f32, kSmall, true};
    case BlockType::q6_k: return {DType::i8, DType::f32, 16, false};
    case BlockType::mxfp4: return {DType::f4_e2m1, DType::bf16, kSmall, false};
  }
  return {};
}

// The first scale of a block that is not finite.
std::optional<float> bad_scale(BlockType type, const std::uint8_t* block) {
  const auto check = [](std::initializer_list<float> scales) -> std::optional<float> {
    const auto* bad = std::ranges::find_if(scales, [](float scale) { return !std::isfinite(scale); });
    return bad == scales.end() ? std::nullopt : std::optional(*bad);
  };
  switch (type) {
    case BlockType::q8_0:
    case BlockType::q4_0:
    case BlockType::q5_0: return check({load_half(block)});
    case BlockType::q4_1:
    case BlockType::q5_1:
    case BlockType::q4_k: return check({load_half(block), load_half(block + 2)});
    case BlockType::q6_k: return check({load_half(block + kQ6kBytes - 2)});
    case BlockType::mxfp4: return check({decode_e8m0(block[0])});
  }
  return std::nullopt;
}

struct BadBlock {
  std::int64_t row, column;  // place of its first element
  float scale;
};

std::optional<BadBlock> find_bad_block(const Tensor& blocks, const BlockFormat& format) {
  const std::int64_t count = blocks.numel() / format.bytes, per_row = blocks.size(1) / format.bytes;
  const auto* bytes = blocks.data<std::uint8_t>();
  std::int64_t first = count;
#pragma omp parallel for schedule(static) reduction(min : first)
  for (std::int64_t i = 0; i < count; ++i)
    if (bad_scale(format.type, bytes + i * format.bytes)) first = std::min(first, i);
  if (first == count) return std::nullopt;
  return BadBlock{first / per_row, first % per_row * format.elements,
                  *bad_scale(format.type, bytes + first * format.bytes)};
}

}  // namespace

std::span<const BlockFormat> block_formats() {
  return kFormats;
}

const BlockFormat& block_format(BlockType type) {
  return *std::ranges::find(kFormats, type, &BlockFormat::type);
}

Tensor quantize_blocks(const Tensor& weight, BlockType type, std::string_view name) {
  const BlockFormat& format = block_format(type);
  const std::int64_t rows = weight.size(0), columns = weight.size(1), blocks = columns / format.elements;
  const Tensor out = Tensor::empty({rows, blocks * format.bytes}, DType::u8);
  dispatch<float, bfloat16>(weight.dtype(), "quantize_blocks", [&]<class T>() {
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<float> x(static_cast<std::size_t>(columns));
      for (std::int64_t i = 0; i < columns; ++i)
        x[static_cast<std::size_t>(i)] = static_cast<float>(weight.data<T>()[row * columns + i]);
      for (std::int64_t b = 0; b < blocks; ++b)
        format.quantize(x.data() + b * format.elements, out.data<std::uint8_t>() + (row * blocks + b) * format.bytes);
    }
    if (const auto bad = find_bad_block(out, format)) {
      std::int64_t at = bad->column;
      const auto value = [&](std::int64_t i) { return static_cast<float>(weight.data<T>()[bad->row * columns + i]); };
      for (std::int64_t i = at; i < bad->column + format.elements; ++i)
        if (std::abs(value(i)) > std::abs(value(at))) at = i;
      QUENCH_FAIL(ErrorCode::nonfinite,
                  "{} holds {} at [{}, {}], for which the scale of a {} block overflows; use mxfp4_weight_only, or "
                  "exclude the layer",
                  name, value(at), bad->row, at, format.name);
    }
  });
  return out;
}

PackedMatrix pack_blocks(const Tensor& blocks, BlockType type, std::int64_t columns, std::string_view source) {
  const BlockFormat& format = block_format(type);
  const PackedForm form = form_of(type);
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
  const std::int64_t row_bytes = columns * bit_width(form.codes) / 8, groups = columns / form.group;
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) {
    const Filler filler{static_cast<std::uint8_t*>(codes.raw_data()) + row * row_bytes,
                        wide.data<float>() + row * groups,
                        offsets.defined() ? offsets.data<float>() + row * groups : nullptr, form.group};
    for (std::int64_t b = 0; b < count; ++b)
      fill_block(type, blocks.data<std::uint8_t>() + (row * count + b) * format.bytes, b * format.elements, filler);
  }
  Tensor scales = wide;
  if (form.scales != DType::f32) {
    scales = Tensor::empty(wide.shape(), form.scales);
    cast({wide, scales});
  }
  return {form.group, codes, scales, offsets};
}

}  // namespace quench
