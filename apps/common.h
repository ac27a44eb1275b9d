#pragma once
// Model and tokenizer loading, threads, JSON output.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "core/json/json.h"
#include "data/tokenizer/tokenizer.h"
#include "nn/decoder/causal_lm.h"
#include "recipes/lora/adapters.h"
#include "train/model_folder/model_card.h"
#include "train/model_folder/token_ids.h"
#include "train/setup/learned_scales.h"
#include "train/setup/trained_scheme.h"

namespace quench {

struct LoadedModel {
  nn::ModelConfig config;
  std::unique_ptr<nn::CausalLm> model;
  std::filesystem::path small_files;    // with tokenizer; may be empty
  std::filesystem::path adapter_files;  // adapter folder with a tokenizer of its own, or empty
  std::int64_t stored_vocabulary = 0;   // rows of the base, fewer than the adapter's; 0: all
  bool is_checkpoint = false;
  bool has_adapter_rows = false;                // embedding or head are those of an adapter folder
  std::string tokenizer;                        // name in an older run's config; may be empty
  std::string fingerprint;                      // training tokenizer's, from a checkpoint; may be empty
  Json named_ids = Json::object();              // ids of such a config
  std::string missing;                          // reason for a missing tokenizer, or empty
  std::shared_ptr<recipes::Adapters> adapters;  // applied; null: none
  std::string base_hash;                        // hash of the adapters' base, in base_dtype; empty: unknown
  DType base_dtype = DType::f32;
  std::string base;        // model.path of the adapters' run, or empty
  bool quantized = false;  // in the folder
  LearnedScales scales;    // QAT checkpoint with trained scales; not with MtpLayers::left_out, as `trained`
  TrainedScheme trained;   // QAT checkpoint
  // In the stored dtype, for weights on disk (open_model).
  std::function<Tensor(const nn::Parameter&)> whole;
};

// After construction, before weights are read. The returned work, if any, runs on a thread during reading: weights are
// undefined. It is left out for quantized folders and adapter checkpoints, whose weights and kernels reading makes.
using LoadingWork = std::function<std::function<void()>(const LoadedModel&)>;

// Layers of multi-token prediction: no pass of a verb runs them, exports write them.
enum class MtpLayers : std::uint8_t {
  left_out,
  of_checkpoints,
  all,  // also those that a model folder, or the base of a run's adapters, stores
};

// Hugging Face folder, checkpoint (step-N), or a run folder's newest checkpoint (not_found with a hint if none) on
// `device` ("auto", "cpu", ...); adapter checkpoints are applied to their base. dtype "auto": stored (f16: f32 on the
// CPU), else "f32" or "bf16". Without `trainable` no gradients are allocated. `adapter`: for use_adapter(), whose
// tokens the model and its tokenizer then have.
[[nodiscard]] LoadedModel load_model(const std::filesystem::path& folder, const std::string& device,
                                     const std::string& dtype, bool trainable = false, const LoadingWork& work = {},
                                     const std::filesystem::path& adapter = {}, MtpLayers mtp = MtpLayers::left_out);

// load_model on the CPU for writing by tensor: parameters of a full-model checkpoint are on the meta device, read by
// `whole`.
[[nodiscard]] LoadedModel open_model(const std::filesystem::path& folder, const std::string& dtype, MtpLayers mtp);

// PEFT adapter, replacing a previous one; no-op for an empty name. An adapter with more tokens than a model folder
// makes its vocabulary grow. `trainable`: only adapter parameters have gradients.
void use_adapter(LoadedModel& loaded, const std::filesystem::path& folder, bool trainable = false);
void merge_adapters(LoadedModel& loaded);

// `name` if nonempty, else the run's, else the model folder's; or null. Throws bad_config if a checkpoint was trained
// with another.
[[nodiscard]] std::unique_ptr<Tokenizer> find_model_tokenizer(const LoadedModel& loaded, const std::string& name);
// Throws bad_config for more tokens than the model's.
void check_model_tokenizer(const LoadedModel& loaded, const Tokenizer& tokenizer);
// find and check; throws not_found without a tokenizer.
[[nodiscard]] std::unique_ptr<Tokenizer> require_model_tokenizer(const LoadedModel& loaded, const std::string& name);

// `tokenizer` may be null or not the model's; warns of a mismatch.
[[nodiscard]] TokenIdChoice model_token_ids(const LoadedModel& loaded, const Tokenizer* tokenizer);

// 0: all available. Throws bad_config for implausible numbers.
void set_threads(int threads);

inline constexpr const char* kMemoryLimitHelp =
    "Limit of this process's GPU memory, such as 16GB or 12GiB, with CUDA context and libraries";
// --memory-limit; no-op for an empty size. Throws bad_config for the CPU.
void limit_gpu_memory(const std::string& device, const std::string& size);

// Training of the model that a path names, for model cards: of a run or checkpoint, or as training_in().
[[nodiscard]] TrainingFacts training_of(const std::filesystem::path& source);

// With a line break, to stdout.
void print_json(const Json& json);

}  // namespace quench
