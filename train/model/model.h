#pragma once
// Model of any path: opened with its adapters, tokenizer and training, changed, and saved in any format.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "nn/decoder/causal_lm.h"
#include "recipes/lora/adapters.h"
#include "train/model/save_target.h"
#include "train/model/weights_choice.h"
#include "train/model_folder/carried_files.h"
#include "train/model_folder/kv_cache_choice.h"
#include "train/model_folder/model_card.h"
#include "train/model_folder/peft_folder.h"
#include "train/model_folder/token_ids.h"
#include "train/model_source/model_source.h"
#include "train/record/run_model.h"
#include "train/run_export/trained_scheme.h"
#include "train/session/learned_scales.h"

namespace quench {

class CheckpointReader;
class Model;
struct SavePlan;

// Layers of multi-token prediction: evaluation and generation do not run them, saved models have them.
enum class MtpLayers : std::uint8_t {
  left_out,  // less memory; Model::save() refuses the model of a checkpoint
  of_checkpoints,
  all,  // also those that a model folder, or the base of a run's adapters, stores
};

// Work during reading. The function is called after construction, before weights are read; what it returns, if
// anything, runs on a thread during reading: weights are undefined. That is left out for quantized folders and adapter
// checkpoints, whose weights and kernels reading makes.
using LoadingWork = std::function<std::function<void()>(const Model&)>;

// How a model is opened.
struct ModelOptions {
  std::string device = "auto";         // or cpu, cuda, cuda:N
  std::string dtype = "auto";          // as stored (f16: f32), or f32, bf16
  bool trainable = false;              // with gradients; not for quantized weights
  std::filesystem::path adapter = {};  // for use_adapter(): model and tokenizer get its tokens at once
  MtpLayers mtp = MtpLayers::all;
  WeightsChoice weights = {};  // other weights of a run or checkpoint
  // On the CPU; weights of a full-model checkpoint stay on disk until save() reads them, one by one, unchanged.
  bool on_demand = false;
  LoadingWork work = {};
  // KV cache of generation and perplexity: a name of kv_cache_names() (train/model_folder/kv_cache_choice.h).
  std::string kv_cache{kModelKvCache};
  // This rank's slice of the weights, for passes that all ranks of the exchange compute together; not for quantized
  // folders, adapters and save(). Null: all weights.
  std::shared_ptr<const autograd::TensorExchange> slices = {};
};

// How Model::use_adapter() adds an adapter.
struct AdapterOptions {
  bool trainable = false;  // only adapter parameters have gradients
};

class Model {
 public:
  // Model folder, quantized or not, GGUF file, checkpoint (step-N), or the newest checkpoint of a run folder. A
  // checkpoint that holds adapters alone has them applied to their base; weights of a quantized folder stay packed.
  // Throws errors of ModelSource::open(), bad_config for a PEFT folder, which use_adapter() takes, and naming the file.
  [[nodiscard]] static Model open(const std::filesystem::path& path, const ModelOptions& options = {});

  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  [[nodiscard]] nn::CausalLm& model() const noexcept { return *model_; }
  [[nodiscard]] const nn::ModelConfig& config() const noexcept { return stored_.config; }
  // Path and kind.
  [[nodiscard]] const ModelSource& source() const noexcept { return source_; }
  // Folder of tokenizer, generation_config.json and licences; may be empty.
  [[nodiscard]] const std::filesystem::path& files() const noexcept { return stored_.files; }
  // Packed weights of a folder.
  [[nodiscard]] bool is_quantized() const noexcept { return is_quantized_; }

  // Applied; null: none.
  [[nodiscard]] recipes::Adapters* adapters() const noexcept { return adapters_.get(); }
  // PEFT adapter, replacing a previous one; no-op for an empty name. An adapter with more tokens than a model folder
  // makes its vocabulary grow.
  void use_adapter(const std::filesystem::path& folder, const AdapterOptions& options = {});
  // Warning if the PEFT adapter names other base weights than these; before use_adapter().
  void warn_of_other_base(const std::filesystem::path& adapter) const;
  // Adds the adapters' updates to the weights; no-op without adapters.
  void merge_adapters();

  // `name` if nonempty, else the adapter's, the run's or the folder's; null without one. Throws bad_config if a
  // checkpoint was trained with another.
  [[nodiscard]] std::unique_ptr<Tokenizer> find_tokenizer(const std::string& name = {}) const;
  // Throws bad_config for more tokens than the model's.
  void check_tokenizer(const Tokenizer& tokenizer) const;
  // find and check; throws not_found without a tokenizer.
  [[nodiscard]] std::unique_ptr<Tokenizer> require_tokenizer(const std::string& name = {}) const;
  // Reason for a missing tokenizer.
  [[nodiscard]] std::string no_tokenizer() const;
  // `tokenizer` may be null or not the model's; warns of a mismatch.
  [[nodiscard]] TokenIdChoice token_ids(const Tokenizer* tokenizer) const;

  // Facts for model cards: of the run, or of a folder with a card.
  [[nodiscard]] TrainingFacts training() const;
  // Scheme and scales of a checkpoint of quantization-aware training; none with MtpLayers::left_out.
  [[nodiscard]] const TrainedScheme& trained_scheme() const noexcept { return trained_; }
  [[nodiscard]] const LearnedScales& learned_scales() const noexcept { return scales_; }

  // Per token, in rolling windows of the model's context, as `quench eval`. Files as EvaluationData's.
  [[nodiscard]] double perplexity(const std::vector<std::string>& files, const std::string& tokenizer = {}) const;

  // Writes the model with its tokenizer and card. Adapters are merged, except by formats "peft" and "gguf-lora"; after
  // rotation, sparsity, calibration or a measured perplexity the model has the weights that were written. Throws as
  // check_save_target() and save_model_folder(), with the target unchanged.
  SavedModel save(const SaveTarget& target);

 private:
  friend SavedModel convert_model(const std::filesystem::path& path, ModelOptions options, const SaveTarget& target);

  // Base of the adapters.
  struct Base {
    std::string path;  // model.path, or empty
    AdapterBase weights;
  };
  struct PeftFolder {
    std::filesystem::path folder;        // applied last; or empty
    std::filesystem::path tokenizer;     // the folder, if it has a tokenizer of its own
    bool has_rows = false;               // embedding or head are those of the folder
    std::int64_t stored_vocabulary = 0;  // rows of the base, fewer than the adapter's; 0: all
  };

  explicit Model(ModelSource source);
  // stored_.config's, or its slice.
  [[nodiscard]] std::unique_ptr<nn::CausalLm> make_model(nn::ParameterOptions parameters,
                                                         nn::KvCacheElements cache) const;
  void open_folder(const ModelOptions& options);
  void open_checkpoint(const std::filesystem::path& folder, const ModelOptions& options);
  void open_on_demand(const std::filesystem::path& folder, std::shared_ptr<CheckpointReader> reader,
                      const ModelOptions& options);
  void convert_to(DType dtype);
  void expect_adapter(const std::filesystem::path& folder);
  void read_again();

  [[nodiscard]] std::vector<std::filesystem::path> sources() const;
  [[nodiscard]] std::function<double(nn::CausalLm&)> perplexity_meter(const std::vector<std::string>& files,
                                                                      const Tokenizer* tokenizer) const;
  SavedModel save_planned(SavePlan plan);
  SavedModel save_adapters(const SavePlan& plan) const;
  ModelRotation rotate(const SavePlan& plan);
  void prepare_quantization(SavePlan& plan) const;
  SavedModel write(const SavePlan& plan, SavedModel saved) const;
  [[nodiscard]] SmallFiles small_files(const std::string& named, const Tokenizer* tokenizer) const;
  // Bytes of the tokenizer in the plan's weights file; 0 where its format has it elsewhere.
  [[nodiscard]] std::int64_t tokenizer_bytes(const SavePlan& plan) const;

  ModelSource source_;
  MtpLayers mtp_ = MtpLayers::all;
  StoredModel stored_;
  std::shared_ptr<const autograd::TensorExchange> slices_;  // null: whole
  std::unique_ptr<nn::CausalLm> model_;
  bool is_quantized_ = false;
  std::shared_ptr<recipes::Adapters> adapters_;
  Base base_;
  PeftFolder peft_;
  TrainedScheme trained_;
  LearnedScales scales_;
  std::function<Tensor(const nn::Parameter&)> whole_;  // in the stored dtype, of weights on disk (on_demand)
};

// Opens a model as the target needs it and saves it: unchanged weights one tensor at a time, MTP layers if the format
// stores them. Throws the errors of check_save_target() and require_weights() before it opens the model.
SavedModel convert_model(const std::filesystem::path& path, ModelOptions options, const SaveTarget& target);

}  // namespace quench
