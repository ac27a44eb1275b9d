#pragma once
// State of a 4-bit weight of bitsandbytes: the JSON text in ".quant_state.bitsandbytes__nf4" or "...__fp4".

#include <cstdint>
#include <string>
#include <string_view>

#include "core/number/dtype.h"
#include "core/tensor/shape.h"

namespace quench {

struct QuantState {
  Shape shape;  // [out, in]
  DType dtype = DType::bf16;
  std::int64_t block = 64;
  std::int64_t nested_block = 0;  // 0: absmax in f32
  float nested_offset = 0;

  [[nodiscard]] std::int64_t blocks() const { return (shape.numel() + block - 1) / block; }
};

// Throws corrupt, or unsupported for other dtypes and types than nf4 and fp4, naming `source`.
[[nodiscard]] QuantState parse_quant_state(std::string_view text, const std::string& source);

}  // namespace quench
