#pragma once
// Weights in TorchAO's safetensors layout, which Transformers loads with the package torchao.
//
// A quantized weight "a.b.weight" is stored as its parts "a.b._weight_qdata", "a.b._weight_scale", ...; the metadata of
// each file say for every weight of which class it is, with the attributes of that class. Source: TorchAO 0.18,
// prototype/safetensors/safetensors_support.py, and the classes under quantization/quantize_/workflows and
// prototype/mx_formats. Which class holds a scheme: torchao_classes() in writer.cpp.

#include <filesystem>
#include <vector>

#include "export/formats/model_tensors.h"

namespace quench {

// Why none of TorchAO's classes holds the scheme, or "".
[[nodiscard]] std::string torchao_problem(const Scheme& scheme);

// Writes the tensors to safetensors files in `folder`, which exists. Returns the quantization_config for config.json:
// the configuration that TorchAO itself would quantize such layers with, for readers that ask.
[[nodiscard]] Json write_torchao(const std::vector<ModelTensor>& tensors, const std::filesystem::path& folder,
                                 std::uint64_t max_shard_bytes);

}  // namespace quench
