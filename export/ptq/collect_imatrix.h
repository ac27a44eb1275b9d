#pragma once
// Importance matrix of a model by running it on calibration data.

#include "export/imatrix/imatrix.h"
#include "export/ptq/quantize_model.h"

namespace quench {

// Matrix of the linear layers of all decoder layers, experts included, unquantized; names of llama.cpp. An expert that
// no token reaches has the count 0. `rules`: calibration data, and how a sharded model is gathered. Throws unsupported
// for a family without GGUF names, nonfinite naming the layer.
[[nodiscard]] Imatrix collect_imatrix(nn::CausalLm& model, const std::vector<ModelTensor>& tensors,
                                      const QuantizationRules& rules);

}  // namespace quench
