#pragma once
// Hugging Face model folders: config.json, model.safetensors (single or sharded), generation_config.json, tokenizer.

#include <filesystem>
#include <functional>

#include "core/safetensors/safetensors.h"
#include "core/tensor/packed_matrix.h"
#include "data/tokenizer/tokenizer.h"
#include "export/ptq/quantize_model.h"
#include "export/table/format.h"
#include "nn/causal_lm.h"
#include "train/model_folder/carried_files.h"
#include "train/model_folder/export_folder.h"
#include "train/model_source/model_source.h"

namespace quench {

// Config of a model folder or GGUF file. A head that holds other values than the embedding table is not tied to it,
// whatever config.json says (export/table/tied_head.h). Throws as ModelSource::config(), and corrupt, bad_config or
// unsupported naming the file.
[[nodiscard]] nn::ModelConfig read_model_config(const ModelSource& source);
// The same of ModelSource::open(folder).
[[nodiscard]] nn::ModelConfig read_model_config(const std::filesystem::path& folder);

// Fills every parameter of the model, but those of adapters, from the folder's weights, dense or quantized
// (export/formats/stored_weights.h), splitting Hugging Face tensors into fused parameters and converting f32, bf16 and
// f16 to the parameters' dtype. With `keep_packed` linear layers keep quantized weights packed, frozen; all other
// parameters get the values. All missing, extra and wrongly shaped tensors are named in one error, before anything is
// read. Rotary buffers of old checkpoints, and a head beside tied embeddings, are ignored.
void load_weights(nn::CausalLm& model, const std::filesystem::path& folder, bool keep_packed = false);

// What a model with adapters does with the codes of a linear layer's weight.
using CodesKeeper = std::function<void(nn::Parameter& weight, const PackedMatrix& codes)>;
// The same, but the decoder's linear layers whose weights are quantized are given to `keep`, on the CPU and with all
// rows whatever part this process holds; on the meta device without values, and the others not at all.
void load_base(nn::CausalLm& model, const std::filesystem::path& folder, const CodesKeeper& keep);

// Copies the rows of a stored tensor from `first_row` on into `destination`, as many as that has, through the host,
// converting f32, bf16 and f16.
void load_tensor(const SafetensorsReader& reader, const SafetensorsEntry& entry, Tensor destination,
                 std::int64_t first_row = 0);

struct ModelFolderOptions {
  DType dtype = DType::bf16;                             // of the stored weights: f32, bf16 or f16
  std::int64_t max_shard_bytes = std::int64_t{5} << 30;  // one file if the weights fit
  const nn::ModelConfig* config = nullptr;               // written as config.json; null: the model's own
  SmallFiles small_files;                                // what is written beside it
  // Brings the whole value of a parameter, of which this process holds a part; null: it holds all of it. Called in the
  // order in which tensors are written (model_tensors()).
  std::function<Tensor(const nn::Parameter&)> whole;
  const ExportFormat* format = nullptr;           // null: Hugging Face's, dense
  std::optional<QuantizationRules> quantization;  // for formats that store codes
  // For the model card; unset: the folder has none.
  struct Card {
    std::string source;           // what was exported
    std::string perplexity_data;  // what `perplexity` is measured on
    // Of the model as it is now; called before and after quantization. Empty: not measured.
    std::function<double(nn::CausalLm&)> perplexity;
  };
  std::optional<Card> card;
};

struct ModelFolderReport {
  std::vector<LayerReport> layers;  // a row for each linear layer of a quantized model
  std::uint64_t file_bytes = 0;     // of the weights files
  std::optional<double> perplexity_before, perplexity;
};

// Writes a folder that Transformers, vLLM and this program load. The folder appears under its name only when it is
// complete, and one tensor at a time is converted; what may stand there before, and what becomes of it, export_folder.h
// says. Throws bad_config for a target that is refused, before anything is computed; no_space or io; what existed
// before is then intact. With
// calibration data, or where the quantized model's perplexity is measured, the model computes with the quantized
// weights afterwards (export/ptq/quantize_model.h).
ModelFolderReport save_model_folder(nn::CausalLm& model, const ExportTarget& target, const ModelFolderOptions& options);

}  // namespace quench
