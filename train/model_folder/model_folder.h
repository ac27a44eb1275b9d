#pragma once
// Hugging Face model folders: config.json, model.safetensors (single or sharded), generation_config.json, tokenizer.

#include <filesystem>
#include <functional>
#include <optional>

#include "core/safetensors/safetensors.h"
#include "core/tensor/packed_matrix.h"
#include "data/tokenizer/tokenizer.h"
#include "export/kv_cache/kv_cache_scheme.h"
#include "export/ptq/quantize_model.h"
#include "export/table/format.h"
#include "nn/decoder/causal_lm.h"
#include "train/model_folder/carried_files.h"
#include "train/model_folder/export_folder.h"
#include "train/model_folder/model_card.h"
#include "train/model_source/model_source.h"

namespace quench {

// Config of a model folder or GGUF file. A head that differs from the embedding table is untied, regardless of
// config.json (export/table/tied_head.h). Throws as ModelSource::config(), and corrupt, bad_config or unsupported
// naming the file.
[[nodiscard]] nn::ModelConfig read_model_config(const ModelSource& source);
[[nodiscard]] nn::ModelConfig read_model_config(const std::filesystem::path& folder);

// Rows of tokens that stored embeddings and heads do not have.
struct NewRows {
  bool normal = false;     // as a new model's, keyed by `seed`; else the mean of the stored rows, in f64
  std::uint64_t seed = 0;  // key of `normal`
};

// Loads all parameters except adapters from dense or quantized weights (export/formats/stored_weights.h), splitting
// Hugging Face tensors into fused parameters, converting f32, bf16 and f16. `keep_packed`: linear layers keep packed,
// frozen weights. Missing, extra and misshaped tensors: one error before any read. Ignores rotary buffers and a head
// stored with tied embeddings. Allocates deferred parameters, one by one; `filled`: not for adapters and packed
// weights. `new_rows`: embedding and head may have more rows than are stored, which are equal for any sharding.
// `seed`: for MTP layers of the model, if the folder holds no weights of such layers, and for Parameter::added ones
// that it lacks. Copies of embedding and head in stored MTP layers are ignored, and whole layers if the model has none;
// a stored score.weight, if the model has no such head.
void load_weights(nn::CausalLm& model, const std::filesystem::path& folder, bool keep_packed = false,
                  const nn::ParameterFilled& filled = {}, const std::optional<NewRows>& new_rows = {},
                  std::optional<std::uint64_t> seed = {});

// For quantized weights of a model with adapters.
using CodesKeeper = std::function<void(nn::Parameter& weight, const PackedMatrix& codes)>;
// Quantized weights of the decoder's linear layers go to `keep`, on the CPU, unsharded. Meta device: without values,
// others not at all.
void load_base(nn::CausalLm& model, const std::filesystem::path& folder, const CodesKeeper& keep,
               const std::optional<NewRows>& new_rows = {});

// Rows of a stored tensor from `first_row` on, through the host, converting f32, bf16 and f16.
void load_tensor(const SafetensorsReader& reader, const SafetensorsEntry& entry, Tensor destination,
                 std::int64_t first_row = 0);

// Outcome of save_model_folder().
struct ModelFolderReport {
  std::vector<LayerReport> layers;  // per linear layer of a quantized model
  std::uint64_t file_bytes = 0;     // weights
  std::optional<double> perplexity_before, perplexity;
};

// Contents of a written model folder.
struct ModelFolderOptions {
  DType dtype = DType::bf16;                             // stored: f32, bf16 or f16
  std::int64_t max_shard_bytes = std::int64_t{5} << 30;  // single file if the weights fit
  const nn::ModelConfig* config = nullptr;               // for config.json; null: the model's
  SmallFiles small_files;                                // written with the weights
  // Whole value of a sharded parameter; null: unsharded. In write order (model_tensors()).
  std::function<Tensor(const nn::Parameter&)> whole;
  const ExportFormat* format = nullptr;           // null: Hugging Face, dense
  std::optional<QuantizationRules> quantization;  // for quantized formats
  // Of readers' KV caches, scaled on the data, which dynamic scales do not need; formats with ExportFormat::kv_cache.
  struct KvCache {
    KvCacheScheme scheme;
    std::shared_ptr<const CalibrationData> calibration = {};
  };
  std::optional<KvCache> kv_cache = {};
  // Unset: no card.
  struct Card {
    std::string source;
    TrainingFacts training = {};
    bool rotated = false;              // rotate_model()
    std::string perplexity_data = {};  // data of `perplexity`
    // Of the model's current state, before and after quantization. Empty: not measured.
    std::function<double(nn::CausalLm&)> perplexity = {};
  };
  std::optional<Card> card;
  // Called with the finished folder, before its card: may set the report's perplexities. False: the target stays as it
  // is.
  std::function<bool(const std::filesystem::path& folder, ModelFolderReport& report)> accept = {};
};

// For Transformers, vLLM and Quench; one tensor at a time, published atomically (export_folder.h). Throws bad_config
// for a refused target before any computation, no_space or io with the target unchanged. With calibration data or a
// measured quantized perplexity, the model has the quantized weights afterwards (export/ptq/quantize_model.h), and the
// KV cache of the folder.
ModelFolderReport save_model_folder(nn::CausalLm& model, const ExportTarget& target, const ModelFolderOptions& options);

}  // namespace quench
