#pragma once
// How the weights of a frozen model are kept.

#include <cstdint>

namespace quench::recipes {

enum class BaseForm : std::uint8_t {
  dense,   // in the dtype of the model
  nf4,     // 4.13 bits an element (core/ops/quantize/nf4.h)
  float8,  // e4m3 with a power-of-two scale a row
  stored,  // the codes of a quantized model folder
};

}  // namespace quench::recipes
