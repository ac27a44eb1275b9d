#pragma once
// A model as one GGUF file for llama.cpp.

#include "core/json/json.h"
#include "export/formats/export_job.h"

namespace quench {

inline constexpr std::string_view kGgufFileName = "model.gguf";

// Why a scheme has no blocks in GGUF, or "".
[[nodiscard]] std::string gguf_problem(const Scheme& scheme);

// Throws unsupported naming what of the model neither the format nor llama.cpp's architecture can say.
void require_gguf_model(const nn::ModelConfig& config);

// Writes model.gguf: tensors in high precision in the model's dtype, those of one axis in f32. Query and key rows are
// put in the order of llama.cpp's rotation where its architecture wants that. Throws unsupported naming what the format
// or llama.cpp's architecture cannot say. No quantization_config: the file describes itself.
Json write_gguf(const ExportJob& job);

}  // namespace quench
