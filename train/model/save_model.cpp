// Model::save(): merging, pruning, quantization and writing.

#include <fmt/ranges.h>

#include <cerrno>
#include <cstdlib>

#include "core/system/file.h"
#include "core/system/log.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "export/budget/plan_file.h"
#include "export/table/fused_layers.h"
#include "nn/spec/rope_override.h"
#include "recipes/packed_linear.h"
#include "recipes/sparse.h"
#include "train/evaluation/calibration_data.h"
#include "train/metrics/progress_line.h"
#include "train/model/model.h"
#include "train/model/save_plan.h"
#include "train/model_folder/gguf_adapter.h"
#include "train/model_folder/stored_block_scales.h"
#include "train/model_source/run_layout.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// Folder of this process for temporary files, removed at the end.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& name) : path_((fs::temp_directory_path() / (name + "-XXXXXX")).string()) {
    QUENCH_CHECK_AS(ErrorCode::io, ::mkdtemp(path_.data()) != nullptr, "cannot create {}: {}", path_,
                    errno_text(errno));
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] fs::path path() const { return path_; }

 private:
  std::string path_;
};

// Dtype in which the target stores a model's weights.
DType saved_dtype(const SavePlan& plan, DType opened) {
  if (plan.target.dtype == "auto") return opened;
  const auto parsed = dtype_from_string(plan.target.dtype);
  QUENCH_CHECK_AS(ErrorCode::bad_config, parsed == DType::f32 || parsed == DType::bf16 || parsed == DType::f16,
                  "{} '{}' is not supported; use auto, f32, bf16 or f16", plan.key("dtype"), plan.target.dtype);
  return *parsed;
}

// Warns of inference engines that cannot run the folder, and of layers that the scheme does not suit, which it returns;
// throws if none can, or the named one cannot.
std::optional<UnfitScheme> check_readers_of(nn::CausalLm& model, const SavePlan& plan, DType dtype) {
  std::optional<UnfitScheme> unfit;
  ExpertSchemes experts;
  if (plan.rules) {
    QuantizationRules rules = *plan.rules;
    const std::vector<ModelTensor> tensors = model_tensors(model, dtype);
    apply_format(*plan.format, rules, tensors, model.config());
    unfit = unfit_scheme(*plan.format, tensors, rules, plan.reader);
    if (unfit) QUENCH_LOG_WARN("{}", to_text(*unfit));
    experts = expert_schemes(tensors, rules, model.config());
    for (const std::string& warning : check_fused_layers(*plan.format, tensors, rules, plan.reader))
      QUENCH_LOG_WARN("{}", warning);
  }
  for (const std::string& warning :
       check_readers(*plan.format, plan.rules ? &*plan.rules : nullptr, dtype, experts, plan.reader))
    QUENCH_LOG_WARN("{}", warning);
  return unfit;
}

void dequantize(nn::CausalLm& model) {
  model.visit([](const std::string&, nn::Module& module) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&module)) recipes::unpack_weight(*linear);
  });
}

// Sets the schemes of the rules by the budget.
SchemePlan choose_schemes(nn::CausalLm& model, SavePlan& plan, DType dtype) {
  QuantizationRules& rules = *plan.rules;
  std::vector<ModelTensor> tensors = model_tensors(model, dtype);
  nn::ModelConfig folded = model.config();
  if (!plan.format->mtp) leave_out_mtp(tensors, folded);
  if (plan.format->fold != nullptr) plan.format->fold(tensors, folded);
  rules.scale_dtype = plan.format->scale_dtype;
  rules.experts = plan.format->experts;
  rules.kept = plan.format->kept;
  rules.scales = nullptr;  // trained for one scheme
  const std::string option = plan.target.target_bits
                                 ? fmt::format("{} {:g}", plan.key("target_bits"), *plan.target.target_bits)
                                 : fmt::format("{} {}", plan.key("target_size"), plan.target.target_size);
  ProgressLine progress("searching schemes");
  SchemePlan chosen = plan_schemes(model, tensors, model.config(), rules, *plan.format, plan.reader, *plan.budget,
                                   option, [&](std::uint64_t done, std::uint64_t all) { progress.update(done, all); });
  apply_plan(chosen, rules);
  if (!plan.target.save_plan.empty()) write_plan(chosen, plan.target.save_plan);
  if (!needs_calibration(rules) && !uses_importance(rules)) rules.calibration = nullptr;
  return chosen;
}

std::string names_of(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const std::string& path : paths) names.push_back(fs::path(path).filename().string());
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::vector<fs::path> Model::sources() const {
  std::vector<fs::path> paths{source_.path(), checkpoint_folder_of(source_.path())};
  if (!peft_.folder.empty()) paths.push_back(peft_.folder);
  return paths;
}

SavedModel Model::save(const SaveTarget& target) {
  return save_planned(plan_save(target, sources()));
}

SavedModel Model::save_planned(SavePlan plan) {
  if (plan.format == nullptr) return save_adapters(plan);
  const std::string source = source_.path().string();
  const SaveTarget& target = plan.target;
  QUENCH_CHECK_AS(ErrorCode::bad_config, !is_quantized_ || !plan.rules || target.allow_requantize,
                  "{} is quantized already: use the unquantized model, or {} for its rounded values", source,
                  plan.key("allow_requantize"));
  QUENCH_CHECK_AS(ErrorCode::bad_config, !is_quantized_ || !plan.kv_cache || plan.rules,
                  "{} is quantized already, and {} without {} would write its weights in high precision: use the "
                  "unquantized model",
                  source, plan.key("kv_cache"), plan.key("scheme"));
  QUENCH_CHECK_AS(ErrorCode::bad_config, !is_quantized_ || !plan.sparsity,
                  "{} is quantized already: prune the unquantized model", source);
  QUENCH_CHECK(mtp_ != MtpLayers::left_out || !source_.is_trained(),
               "{} was opened without its MTP layers and trained scheme: it cannot be saved", source);
  QUENCH_CHECK(!whole_ || plan.keeps_weights(), "{} was opened on demand: its weights can only be saved unchanged",
               source);
  const DType dtype = saved_dtype(plan, model_->options().dtype);
  SavedModel saved{.path = plan.place.folder, .format = std::string(plan.format->name), .dtype = dtype};
  if (target.rotate) saved.rotation = rotate(plan);
  if (!plan.budget) saved.unfit = check_readers_of(*model_, plan, dtype);
  plan.place.kept = {stored_.files, plan.target.tokenizer};
  if (is_quantized_ && plan.rules) {
    dequantize(*model_);
    is_quantized_ = false;
  }
  merge_adapters();
  if (plan.sparsity) (void)recipes::prune(*model_, *plan.sparsity, excluded_layers(plan.target.quantization));
  if (plan.rules) {
    plan.rules->device = model_->options().device;
    prepare_quantization(plan);
  }
  const bool calibrates_cache = plan.kv_cache && !plan.kv_cache->scales->dynamic;
  if (plan.rules || calibrates_cache || !plan.target.perplexity.empty()) {
    const auto tokenizer = find_tokenizer(plan.target.tokenizer);
    if (tokenizer != nullptr) check_tokenizer(*tokenizer);
    if (plan.rules && (plan.budget || needs_calibration(*plan.rules) || uses_importance(*plan.rules)))
      plan.rules->calibration =
          read_calibration_data(plan.target.quantization, tokenizer.get(), config(), stored_.missing);
    if (calibrates_cache)
      plan.cache_data =
          plan.rules && plan.rules->calibration != nullptr
              ? plan.rules->calibration
              : read_calibration_data(plan.target.quantization, tokenizer.get(), config(), stored_.missing);
    if (!plan.target.perplexity.empty()) plan.perplexity = perplexity_meter(plan.target.perplexity, tokenizer.get());
  }
  if (plan.budget) {
    plan.budget->tokenizer_bytes = tokenizer_bytes(plan);
    saved.plan = choose_schemes(*model_, plan, dtype);
    (void)check_readers_of(*model_, plan, dtype);
  }
  return write(plan, std::move(saved));
}

// Merges adapters before.
ModelRotation Model::rotate(const SavePlan& plan) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, trained_.scheme == nullptr,
                  "{}: recipe {} trained {} for the codes of scheme {}, which a rotation gives up; omit it",
                  plan.key("rotate"), trained_.recipe, source_.path().string(), trained_.scheme->name);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !is_quantized_ || plan.rules,
                  "{} is quantized already, and {} without {} would write its weights in high precision: use the "
                  "unquantized model",
                  source_.path().string(), plan.key("rotate"), plan.key("scheme"));
  const std::string problem = rotation_problem(config());
  QUENCH_CHECK_AS(ErrorCode::unsupported, problem.empty(), "{}: {} cannot be rotated: {}", plan.key("rotate"),
                  source_.path().string(), problem);
  if (is_quantized_) dequantize(*model_);
  is_quantized_ = false;
  merge_adapters();
  const ModelRotation made = rotate_model(*model_);
  stored_.config.tie_word_embeddings = false;
  return made;
}

// Scales that the weights were trained or stored with.
void Model::prepare_quantization(SavePlan& plan) const {
  std::vector<ModelTensor> tensors = model_tensors(*model_, model_->options().dtype);
  if (nn::ModelConfig folded = config(); plan.format->fold != nullptr) plan.format->fold(tensors, folded);
  QuantizationRules rules = *plan.rules;
  apply_format(*plan.format, rules, tensors, config());
  trained_.require_kept_codes(tensors, rules);
  trained_.warn_of_others(tensors, rules);
  scales_.choose_in(*plan.rules);
  if (!source_.is_trained() && !plan.target.rotate) plan.rules->block_scales = stored_block_scales(stored_.files);
}

// A named tokenizer folder provides its own small files.
SmallFiles Model::small_files(const std::string& named, const Tokenizer* tokenizer) const {
  fs::path tokenizer_folder = named.empty() ? stored_.files : fs::path(named);
  if (!named.empty() && !fs::is_directory(tokenizer_folder)) tokenizer_folder.clear();
  return {.model = stored_.files, .tokenizer_folder = tokenizer_folder, .tokenizer = tokenizer};
}

// The tokenizer's files are written to a folder of their own, as next to the weights.
std::int64_t Model::tokenizer_bytes(const SavePlan& plan) const {
  if (plan.format->tokenizer_bytes == nullptr) return 0;
  const std::unique_ptr<Tokenizer> tokenizer = find_tokenizer(plan.target.tokenizer);
  const ScratchFolder folder("quench-tokenizer");
  write_small_files(nn::to_hf_json(config(), model_->options().dtype),
                    small_files(plan.target.tokenizer, tokenizer.get()), folder.path());
  return plan.format->tokenizer_bytes(folder.path(), config());
}

SavedModel Model::write(const SavePlan& plan, SavedModel saved) const {
  const std::string& named = plan.target.tokenizer;
  ModelFolderOptions options;
  options.format = plan.format;
  options.whole = whole_;
  options.quantization = plan.rules;
  if (plan.kv_cache) options.kv_cache = {*plan.kv_cache, plan.cache_data};
  options.dtype = saved.dtype;
  options.max_shard_bytes = plan.target.max_shard_bytes;
  const std::unique_ptr<Tokenizer> tokenizer = find_tokenizer(named);
  const TokenIdChoice ids = token_ids(tokenizer.get());
  nn::ModelConfig written = config();
  if (tokenizer != nullptr || stored_.files.empty()) set_token_ids(written, ids.config);
  options.config = &written;
  options.small_files = small_files(named, tokenizer.get());
  options.small_files.generation_ids = ids.generation;
  if (tokenizer == nullptr && !stored_.missing.empty())
    QUENCH_LOG_WARN("{}: the export has no tokenizer; name one with --tokenizer", stored_.missing);
  options.card = {.source = source_.path().string(),
                  .training = training(),
                  .rotated = plan.target.rotate,
                  .perplexity_data = names_of(plan.target.perplexity),
                  .perplexity = plan.perplexity};
  saved.report = save_model_folder(*model_, plan.place, options);
  if (!plan.format->mtp) written.mtp.layers = 0;
  saved.parameters = written.parameter_count();
  if (plan.rules) saved.scheme = plan.rules->scheme->name;
  if (plan.kv_cache) saved.kv_cache = plan.kv_cache->describe();
  return saved;
}

SavedModel Model::save_adapters(const SavePlan& plan) const {
  QUENCH_CHECK_AS(ErrorCode::bad_config, adapters_ != nullptr,
                  "the checkpoint holds a whole model, no adapters: {} {} has nothing to write", plan.key("format"),
                  plan.target.format);
  const bool has_base = !base_.path.empty();
  QUENCH_CHECK_AS(ErrorCode::unsupported, !has_base || nn::same_ropes(read_model_config(base_.path), config()),
                  "{} {} holds no RoPE settings, and readers of the adapter take those of {}, not the run's; merge the "
                  "adapters (quench merge-lora)",
                  plan.key("format"), plan.target.format, base_.path);
  const std::unique_ptr<Tokenizer> tokenizer = has_base ? find_tokenizer() : nullptr;
  const bool learned = tokenizer != nullptr && holds_tokenizer(base_.path) &&
                       load_tokenizer(base_.path)->fingerprint() != tokenizer->fingerprint();
  SavedModel saved{
      .path = plan.place.folder, .format = plan.target.format, .dtype = saved_dtype(plan, model_->options().dtype)};
  saved.adapted_layers = adapters_->layers().size();
  if (plan.target.format == kGgufLoraFormat) {
    QUENCH_CHECK_AS(
        ErrorCode::unsupported, !has_base || read_model_config(base_.path).vocab_size >= config().vocab_size,
        "{} {}: llama.cpp's adapters hold no new tokens; write a model with the adapters merged, format gguf",
        plan.key("format"), kGgufLoraFormat);
    save_gguf_adapter(*model_, *adapters_, plan.place, saved.dtype);
    return saved;
  }
  save_adapter_folder(*model_, *adapters_, plan.place,
                      {.dtype = saved.dtype,
                       .base = base_.path,
                       .trained_over = peft_.folder.empty() ? base_.weights : adapter_base(peft_.folder),
                       .vocabulary = has_base && read_model_config(base_.path).vocab_size < config().vocab_size,
                       .tokenizer = learned ? tokenizer.get() : nullptr,
                       .training = training(),
                       .generation_ids = token_ids(tokenizer.get()).generation});
  return saved;
}

SavedModel convert_model(const fs::path& path, ModelOptions options, const SaveTarget& target) {
  SavePlan plan = plan_save(target, {path, checkpoint_folder_of(path)});
  require_weights(path, options.weights);
  options.mtp = plan.format != nullptr && plan.format->mtp ? MtpLayers::all : MtpLayers::of_checkpoints;
  options.on_demand = plan.keeps_weights() && !options.weights.given();
  if (options.on_demand) options.device = "cpu";
  return Model::open(path, options).save_planned(std::move(plan));
}

}  // namespace quench
