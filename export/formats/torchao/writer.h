#pragma once
// Writer of TorchAO's safetensors layout, which Transformers loads with torchao.
//
// A quantized weight "a.b.weight" is stored as its parts "a.b._weight_qdata", "a.b._weight_scale", ...; each file's
// metadata hold every weight's class and attributes. Source: TorchAO 0.18,
// prototype/safetensors/safetensors_support.py, quantization/quantize_/workflows and prototype/mx_formats. Class of a
// scheme: torchao_classes() in writer.cpp.

#include <filesystem>
#include <vector>

#include "export/formats/model_tensors.h"

namespace quench {

// Reason why no TorchAO class stores the scheme, or "".
[[nodiscard]] std::string torchao_problem(const Scheme& scheme);

// Writes safetensors files to an existing `folder`. Returns the quantization_config for config.json: the equivalent
// TorchAO config.
[[nodiscard]] Json write_torchao(const std::vector<ModelTensor>& tensors, const std::filesystem::path& folder,
                                 std::uint64_t max_shard_bytes);

}  // namespace quench
