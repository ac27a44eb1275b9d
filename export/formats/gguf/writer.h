#pragma once
// Writer of GGUF files.

#include "core/json/json.h"
#include "export/formats/export_job.h"

namespace quench {

inline constexpr std::string_view kGgufFileName = "model.gguf";

// Reason for no GGUF block type, or "".
[[nodiscard]] std::string gguf_problem(const Scheme& scheme);

// Reason why a layer stays in high precision, or "".
[[nodiscard]] std::string_view gguf_kept(const ModelTensor& tensor);

// Throws unsupported naming features without a GGUF or llama.cpp equivalent.
void require_gguf_model(const nn::ModelConfig& config);

// model.gguf: unquantized tensors in the model's dtype, 1-D and routers in f32; experts of a projection as one tensor;
// query and key rows reordered for interleaved RoPE. Tensors and config as of fold_query_scale(). Throws unsupported as
// require_gguf_model. Returns no quantization_config.
Json write_gguf(const ExportJob& job);

}  // namespace quench
