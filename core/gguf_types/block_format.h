#pragma once
// Table of GGUF block types (ggml-common.h and ggml-quants.c of ggml). An entry says how a block is laid out, read and
// written; the code of a type is in the file of its family, which the table alone names.

#include <cstdint>
#include <span>
#include <string_view>

#include "core/number/dtype.h"

namespace quench {

enum class BlockType : std::uint8_t {
  q8_0,     // 32 elements: f16 scale, 8-bit values
  q4_0,     // 32: f16 scale, 4-bit values
  q4_1,     // 32: f16 scale and minimum, 4-bit values
  q5_0,     // 32: f16 scale, 5-bit values
  q5_1,     // 32: f16 scale and minimum, 5-bit values
  q2_k,     // 256: sixteen groups of 16 with 4-bit scale and minimum, two f16 super-scales, 2-bit values
  q3_k,     // 256: sixteen groups of 16 with 6-bit scale, f16 super-scale, 3-bit values
  q4_k,     // 256: eight groups of 32 with 6-bit scale and minimum, two f16 super-scales, 4-bit values
  q5_k,     // 256: the same, 5-bit values
  q6_k,     // 256: sixteen groups of 16 with 8-bit scale, f16 super-scale, 6-bit values
  q8_k,     // 256: f32 scale, 8-bit values
  iq4_nl,   // 32: f16 scale, 4-bit codes of sixteen values
  iq4_xs,   // 256: eight groups of 32 with 6-bit scale, f16 super-scale, 4-bit codes of sixteen values
  iq3_s,    // 256: codebook of 512 times 4 magnitudes, a sign each
  iq3_xxs,  // 256: codebook of 256 times 4 magnitudes, 7 signs for 8
  iq2_s,    // 256: codebook of 1024 times 8 magnitudes, a sign each
  iq2_xs,   // 256: codebook of 512 times 8 magnitudes, 7 signs for 8
  iq2_xxs,  // 256: codebook of 256 times 8 magnitudes, 7 signs for 8
  iq1_s,    // 256: codebook of 2048 times 8 ternary values, shifted by group of 32
  iq1_m,    // 256: the same, shifted by group of 8
  tq1_0,    // 256: f16 scale, ternary values, 1.69 bits each
  tq2_0,    // 256: f16 scale, ternary values, 2 bits each
  mxfp4,    // 32: E8M0 scale, e2m1 values
  nvfp4,    // 64: e4m3 scales of four groups of 16, e2m1 values
};

inline constexpr int kMostBlockElements = 256, kMostBlockGroups = 16, kMostBlockBytes = 292;

// One block: element i is scales[i / group] * value(codes[i]) + offsets[i / group] in f32, which is ggml's value bit
// for bit. `value` is the integer, or the e2m1 number where PackedForm has such codes.
struct UnpackedBlock {
  std::int8_t codes[kMostBlockElements];
  float scales[kMostBlockGroups];
  float offsets[kMostBlockGroups];  // where PackedForm has offsets
};

// Form of the PackedMatrix that holds a type.
struct PackedForm {
  DType codes;  // i4, i8 or f4_e2m1
  DType scales;
  std::int64_t group;
  bool offsets = false;
  int bias = 0;  // subtracted from codes, which offsets make up for
};

struct BlockFormat {
  BlockType type;
  std::string_view name;  // ggml's
  std::uint32_t ggml_type;
  std::uint32_t file_type;  // general.file_type of mainly this type
  std::int64_t elements;    // per block
  std::int64_t bytes;
  PackedForm packed;
  void (*unpack)(const std::uint8_t* block, UnpackedBlock& out);
  // One block of finite values; importance: a non-negative factor of each element's squared error, or null for 1. An
  // infinite scale where one overflows. Null: read only.
  void (*quantize)(const float* x, const float* importance, std::uint8_t* block) = nullptr;
  bool needs_importance = false;  // poor without
};

[[nodiscard]] std::span<const BlockFormat> block_formats();
[[nodiscard]] const BlockFormat& block_format(BlockType type);

// `elements` values of one block, ggml's bit for bit; non-finite for non-finite scales.
void dequantize_block(const BlockFormat& format, const std::uint8_t* block, float* out);

}  // namespace quench
