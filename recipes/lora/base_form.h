#pragma once
// Storage of the frozen weights under adapters.

#include <cstdint>

namespace quench::recipes {

enum class BaseForm : std::uint8_t {
  dense,   // model dtype
  nf4,     // 4.13 bits per element (core/ops/quantize/nf4.h)
  float8,  // e4m3 with a power-of-two scale per row
  stored,  // values of a quantized model folder
};

}  // namespace quench::recipes
