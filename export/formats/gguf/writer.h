#pragma once

#include "core/json/json.h"
#include "export/formats/export_job.h"

namespace quench {

inline constexpr std::string_view kGgufFileName = "model.gguf";

// Reason for no GGUF block type, or "".
[[nodiscard]] std::string gguf_problem(const Scheme& scheme);

// Throws unsupported naming features without a GGUF or llama.cpp equivalent.
void require_gguf_model(const nn::ModelConfig& config);

// model.gguf: unquantized tensors in the model's dtype, 1-D in f32; query and key rows reordered for interleaved RoPE.
// Throws unsupported as require_gguf_model. Returns no quantization_config.
Json write_gguf(const ExportJob& job);

}  // namespace quench
