#pragma once
// Bank of LoRA adapters over one base: every row of a pass has the adapter that nn::AdapterRowsScope names, or none.

#include <cstdint>
#include <span>
#include <string>

#include "recipes/lora/adapters.h"

namespace quench::recipes {

struct NamedAdapters {
  std::string name;          // in errors
  const Adapters* adapters;  // adapters of the model, not attached
};

// Wraps the current kernels of the layers with an adapter, for inference; the number of an adapter is its place in
// `adapters`, whose weights are copied: bytes of the copies. `dtype` and `device`: those of activations. Layers with an
// adapter run no fused ops. A row's update is A x in f32, then y + B (A x) rounded once, and does not depend on
// other rows. Throws unsupported, naming the adapter, for what is not a low-rank update of a linear layer: magnitudes
// (DoRA), saved modules, token rows, experts; nothing is changed then.
std::int64_t attach_adapter_bank(std::span<const NamedAdapters> adapters, DType dtype, Device device);

}  // namespace quench::recipes
