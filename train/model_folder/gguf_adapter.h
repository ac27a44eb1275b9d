#pragma once
// LoRA adapters as a GGUF file for llama.cpp's --lora.

#include "export/table/format.h"
#include "nn/decoder/causal_lm.h"
#include "recipes/lora/adapters.h"
#include "train/model_folder/export_folder.h"

namespace quench {

// model.gguf of a folder, or the file target: NAME.lora_a [rank, in] and NAME.lora_b [out, rank] by GGUF names (a
// projection's experts stacked), B with the row order and the factors of the model's GGUF file, and with a layer's own
// scale where it differs from alpha / rank. `dtype`: f32, bf16 or f16. `whole`: gathers sharded adapters; or unset.
// Published atomically. Throws unsupported, naming the layer, for what --lora cannot hold: magnitudes (DoRA), saved
// modules, the embedding's rows; and as require_gguf_model() and save_model_folder().
void save_gguf_adapter(nn::CausalLm& model, const recipes::Adapters& adapters, const ExportTarget& target, DType dtype,
                       const recipes::Adapters::Whole& whole = {});

}  // namespace quench
