#pragma once
// TorchAO's safetensors layout, which Transformers loads with torchao (TorchAO 0.18:
// prototype/safetensors/safetensors_support.py, quantization/quantize_/workflows, prototype/mx_formats).
//
// "a.b.weight" is stored as "a.b._weight_qdata", "a.b._weight_scale", ...; file metadata hold class and attributes.
// Classes: kClasses in writer.cpp.

#include <filesystem>
#include <vector>

#include "export/formats/model_tensors.h"

namespace quench {

// Reason for no TorchAO class, or "".
[[nodiscard]] std::string torchao_problem(const Scheme& scheme);

// safetensors files in an existing `folder`. Returns the equivalent TorchAO config for config.json.
[[nodiscard]] Json write_torchao(const std::vector<ModelTensor>& tensors, const std::filesystem::path& folder,
                                 std::uint64_t max_shard_bytes);

}  // namespace quench
