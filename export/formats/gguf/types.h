#pragma once
// Types of ggml by number: plain ones and blocks.

#include <cstdint>
#include <optional>
#include <string>

#include "core/number/dtype.h"
#include "export/schemes/gguf_blocks.h"

namespace quench {

struct GgufTypeLayout {
  std::optional<DType> plain;       // of single elements
  std::optional<BlockType> blocks;  // of quantized ones
  std::uint64_t elements = 1;       // of a block
  std::uint64_t bytes = 0;
  std::uint32_t file_type = 0;  // general.file_type of a file that holds mainly these
};

// Absent for numbers that are not known.
[[nodiscard]] std::optional<GgufTypeLayout> gguf_type_layout(std::uint32_t type);
// The number of a dtype: f32, f16 or bf16.
[[nodiscard]] std::uint32_t gguf_type_of(DType dtype);
// What ggml calls a type, known here or not: "Q5_K", or "99 of ggml".
[[nodiscard]] std::string gguf_type_name(std::uint32_t type);
// "F32, F16, ..."
[[nodiscard]] std::string gguf_type_names();

}  // namespace quench
