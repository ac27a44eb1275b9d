#pragma once
// Writer of the folders that reader.h reads: Transformers' quant_method "mxfp4".

#include "core/json/json.h"
#include "export/formats/export_job.h"

namespace quench {

// Reason why the format cannot store the scheme, or "".
[[nodiscard]] std::string mxfp4_problem(const Scheme& scheme);

// Reason why a layer stays in high precision, or "".
[[nodiscard]] std::string_view mxfp4_kept(const ModelTensor& tensor);

// Throws unsupported unless the family stores gate and up of all experts in alternating columns, as gpt-oss.
void require_mxfp4_model(const nn::ModelConfig& config);

// Job with one tensor for each expert's projection. Returns the quantization_config. Throws bad_config for an expert
// that is not quantized.
[[nodiscard]] Json write_mxfp4_experts(const ExportJob& job);

}  // namespace quench
