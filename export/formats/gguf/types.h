#pragma once
// ggml types by number.

#include <cstdint>
#include <optional>
#include <string>

#include "core/gguf_types/block_tensors.h"
#include "core/number/dtype.h"

namespace quench {

struct GgufTypeLayout {
  std::optional<DType> plain;       // scalar types
  std::optional<BlockType> blocks;  // quantized block types
  std::uint64_t elements = 1;       // per block
  std::uint64_t bytes = 0;
  std::uint32_t file_type = 0;  // general.file_type of mainly this type
};

// Absent if unknown.
[[nodiscard]] std::optional<GgufTypeLayout> gguf_type_layout(std::uint32_t type);
// f32, f16 or bf16.
[[nodiscard]] std::uint32_t gguf_type_of(DType dtype);
// "Q5_K", or "99 of ggml".
[[nodiscard]] std::string gguf_type_name(std::uint32_t type);
// "F32, F16, ..."
[[nodiscard]] std::string gguf_type_names();

}  // namespace quench
