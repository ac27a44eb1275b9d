#include "apps/common.h"

#include <cstdio>
#include <future>

#include "core/memory/memory_limit.h"
#include "core/ops/elementwise.h"
#include "core/system/log.h"
#include "core/system/threads.h"
#include "data/text/document_encoder.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/check/load.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/doctor/kernel_check.h"
#include "train/metrics/run_files.h"
#include "train/model_folder/model_folder.h"
#include "train/model_folder/peft_folder.h"
#include "train/model_folder/stored_mtp.h"
#include "train/model_source/model_source.h"
#include "train/run/end_report.h"
#include "train/run/training_facts.h"
#include "train/setup/adapter_setup.h"
#include "train/setup/run_model.h"
#include "train/step/training_state.h"

namespace quench {

namespace {

namespace fs = std::filesystem;

DType chosen_dtype(const std::string& name, DType stored) {
  if (name == "auto") return stored == DType::f16 ? DType::f32 : stored;
  const auto parsed = dtype_from_string(name);
  QUENCH_CHECK_AS(ErrorCode::bad_config, parsed == DType::f32 || parsed == DType::bf16,
                  "--dtype '{}' is not supported; use auto, f32 or bf16", name);
  return *parsed;
}

// Parameter dtype of a checkpoint.
DType stored_dtype(const Manifest& manifest) {
  for (const TensorRecord& record : manifest.tensors)
    if (!record.name.starts_with("optimizer.")) return record.dtype;
  QUENCH_FAIL(ErrorCode::corrupt, "the checkpoint of step {} holds no parameters", manifest.state.step);
}

// Starts the concurrent work. Invalid future if there is none. get() waits and rethrows; the destructor waits too.
// `complete`: reading allocates no weights and attaches no kernels; otherwise the work is left out.
std::future<void> begin_loading_work(const LoadingWork& start, const LoadedModel& loaded, bool complete = true) {
  const std::function<void()> work = start ? start(loaded) : std::function<void()>();
  return work && complete ? std::async(std::launch::async, work) : std::future<void>();
}

// On-demand reader of parameters.
nn::WholeRows read_on_demand(std::shared_ptr<CheckpointReader> reader) {
  return [reader = std::move(reader)](const nn::Parameter& parameter) {
    const Tensor values = Tensor::empty(parameter.global_shape, reader->at(parameter.name).dtype);
    reader->read(parameter.name, values);
    return values;
  };
}

// Model of a checkpoint, without weights.
LoadedModel describe_checkpoint(const CheckpointReader& reader, const fs::path& folder, const fs::path& run) {
  StoredModel description = stored_model(reader.state(), folder, run);
  LoadedModel loaded;
  loaded.is_checkpoint = true;
  loaded.config = std::move(description.config);
  loaded.tokenizer = std::move(description.tokenizer);
  loaded.small_files = std::move(description.files);
  loaded.fingerprint = std::move(description.fingerprint);
  loaded.named_ids = std::move(description.named_ids);
  loaded.missing = std::move(description.missing);
  return loaded;
}

// model.path of a run's config, already validated by restore_adapted().
std::string model_path(const Json& config) {
  const Json* path = config.at("model").find("path");
  return path != nullptr && path->is_string() ? path->as_string() : std::string();
}

// True if the run's adapters have a base quantized in its folder: the hash of stored values does not identify the
// weights.
bool trains_over_codes(const Json& config) {
  const Json* lora = config.find("lora");
  const Json* base = lora != nullptr && lora->is_object() ? lora->find("base") : nullptr;
  return base != nullptr && *base == Json("stored");
}

// `run`: run folder that contained the checkpoint; may be empty.
LoadedModel load_checkpoint(const fs::path& folder, const fs::path& run, nn::ParameterOptions options,
                            const std::string& dtype, const LoadingWork& work, MtpLayers mtp) {
  CheckpointReader reader(folder);
  LoadedModel loaded = describe_checkpoint(reader, folder, run);
  if (mtp == MtpLayers::left_out) loaded.config.mtp.layers = 0;
  if (mtp == MtpLayers::all && holds_adapters_alone(reader.state()))
    if (const fs::path base = base_path(reader.state(), folder.string(), run);
        !base.empty() && fs::exists(base) && holds_mtp(base, loaded.config))
      loaded.config.mtp.layers = loaded.config.mtp.declared;
  const DType stored = stored_dtype(reader.manifest()), wanted = chosen_dtype(dtype, stored);
  options.dtype = stored;
  loaded.model = std::make_unique<nn::CausalLm>(loaded.config, options);
  std::future<void> other_work;
  if (wanted == stored) other_work = begin_loading_work(work, loaded, !holds_adapters_alone(reader.state()));
  if (holds_adapters_alone(reader.state())) {
    loaded.adapters = restore_adapted(reader, loaded.model, folder.string(), run);
    loaded.base = model_path(reader.state().config);
    if (!trains_over_codes(reader.state().config)) loaded.base_hash = stored_base_hash(reader.state());
    loaded.base_dtype = stored;
  } else {
    restore_parameters(reader, *loaded.model);
  }
  // For exports alone. Without MTP layers, rules that name only those would match nothing.
  if (mtp != MtpLayers::left_out) {
    loaded.scales = stored_scales(reader, folder.string());
    loaded.trained = stored_scheme(reader, loaded.config, folder.string());
  }
  if (other_work.valid()) other_work.get();
  if (wanted == stored) return loaded;
  options.dtype = wanted;
  auto converted = std::make_unique<nn::CausalLm>(loaded.config, options);
  std::shared_ptr<recipes::Adapters> adapters;
  if (loaded.adapters) {
    adapters =
        std::make_shared<recipes::Adapters>(*converted, loaded.adapters->layers(), loaded.adapters->options(), options);
    adapters->attach();
  }
  const auto from = loaded.model->parameters(), to = converted->parameters();
  for (std::size_t i = 0; i < from.size(); ++i) cast({from[i]->variable.value(), to[i]->variable.value()});
  loaded.model = std::move(converted);
  loaded.adapters = std::move(adapters);
  if (other_work = begin_loading_work(work, loaded); other_work.valid()) other_work.get();
  return loaded;
}

// The vocabulary of an adapter, and its tokenizer.
void expect_adapter(LoadedModel& loaded, const fs::path& adapter) {
  if (adapter.empty()) return;
  loaded.adapter_files = holds_tokenizer(adapter) ? adapter : fs::path();
  const std::optional<std::int64_t> rows = adapter_vocabulary(adapter);
  if (!rows || *rows <= loaded.config.vocab_size) return;
  const std::int64_t before = std::exchange(loaded.config.vocab_size, *rows);
  if (loaded.stored_vocabulary == 0) loaded.stored_vocabulary = before;
  loaded.config.source.set("vocab_size", *rows);
}

std::optional<NewRows> new_rows(const LoadedModel& loaded) {
  return loaded.stored_vocabulary > 0 ? std::optional(NewRows()) : std::nullopt;
}

// Weights of the folder, with the rows of expect_adapter().
void read_again(LoadedModel& loaded) {
  if (loaded.adapters) std::exchange(loaded.adapters, nullptr)->detach();
  const nn::ParameterOptions options = loaded.model->options();
  loaded.model = nullptr;
  loaded.model = std::make_unique<nn::CausalLm>(loaded.config, options);
  load_weights(*loaded.model, loaded.small_files, loaded.quantized, {}, new_rows(loaded));
}

LoadedModel load_source(const ModelSource& source, const std::string& device, const std::string& dtype, bool trainable,
                        const LoadingWork& work, const fs::path& adapter = {}, MtpLayers mtp = MtpLayers::left_out) {
  nn::ParameterOptions options;
  options.device = parse_device(device);
  check_kernels(options.device);
  options.grad_dtype = DType::f32;
  options.trainable = trainable;
  if (source.is_trained()) return load_checkpoint(source.checkpoint(), source.run(), options, dtype, work, mtp);
  const fs::path& folder = source.path();
  LoadedModel loaded;
  loaded.config = read_model_config(source);
  loaded.small_files = folder;
  options.dtype = chosen_dtype(dtype, loaded.config.dtype);
  if (source.is_quantized(loaded.config.source)) {
    QUENCH_CHECK_AS(ErrorCode::unsupported, !trainable,
                    "{}: quantized weights have no gradients; use the unquantized model", folder.string());
    loaded.quantized = options.deferred = true;
  }
  expect_adapter(loaded, adapter);
  if (mtp == MtpLayers::all && holds_mtp(folder, loaded.config)) loaded.config.mtp.layers = loaded.config.mtp.declared;
  loaded.model = std::make_unique<nn::CausalLm>(loaded.config, options);
  std::future<void> other_work = begin_loading_work(work, loaded, !loaded.quantized);
  load_weights(*loaded.model, folder, loaded.quantized, {}, new_rows(loaded));
  if (other_work.valid()) other_work.get();
  return loaded;
}

}  // namespace

LoadedModel load_model(const fs::path& folder, const std::string& device, const std::string& dtype, bool trainable,
                       const LoadingWork& work, const fs::path& adapter, MtpLayers mtp) {
  return load_source(ModelSource::open(folder), device, dtype, trainable, work, adapter, mtp);
}

LoadedModel open_model(const fs::path& folder, const std::string& dtype, MtpLayers mtp) {
  const ModelSource source = ModelSource::open(folder);
  if (!source.is_trained()) return load_source(source, "cpu", dtype, false, {}, {}, mtp);
  const fs::path checkpoint = source.checkpoint();
  auto reader = std::make_shared<CheckpointReader>(checkpoint);
  if (holds_adapters_alone(reader->state())) return load_source(source, "cpu", dtype, false, {}, {}, mtp);
  LoadedModel loaded = describe_checkpoint(*reader, checkpoint, source.run());
  if (mtp == MtpLayers::left_out) loaded.config.mtp.layers = 0;
  nn::ParameterOptions options;
  options.device = Device{DeviceType::meta};
  options.dtype = chosen_dtype(dtype, stored_dtype(reader->manifest()));
  options.trainable = false;
  loaded.model = std::make_unique<nn::CausalLm>(loaded.config, options);
  loaded.whole = read_on_demand(std::move(reader));
  return loaded;
}

void use_adapter(LoadedModel& loaded, const fs::path& folder, bool trainable) {
  if (folder.empty()) return;
  const std::optional<std::int64_t> rows = adapter_vocabulary(folder);
  const bool grows = rows && *rows > loaded.config.vocab_size;
  QUENCH_CHECK_AS(ErrorCode::unsupported, !grows || !loaded.is_checkpoint,
                  "the adapter in {} has a vocabulary of {}, the checkpoint one of {}; load it over the model folder "
                  "that it was trained from",
                  folder.string(), rows.value_or(0), loaded.config.vocab_size);
  expect_adapter(loaded, folder);
  // Rows of an earlier adapter are not those of the base.
  if (grows || (loaded.has_adapter_rows && !loaded.is_checkpoint)) read_again(loaded);
  loaded.has_adapter_rows = rows.has_value();
  nn::ParameterOptions options = loaded.model->options();
  options.trainable = trainable;
  std::shared_ptr<recipes::Adapters> fresh = load_adapter(*loaded.model, folder, options);
  if (loaded.adapters) loaded.adapters->detach();
  loaded.adapters = std::move(fresh);
  loaded.adapters->attach();
  if (trainable) recipes::freeze_base(*loaded.model);
}

void merge_adapters(LoadedModel& loaded) {
  if (loaded.adapters) std::exchange(loaded.adapters, nullptr)->merge();
}

std::unique_ptr<Tokenizer> find_model_tokenizer(const LoadedModel& loaded, const std::string& name) {
  if (!name.empty()) return load_tokenizer(name);
  if (!loaded.adapter_files.empty()) return load_tokenizer(loaded.adapter_files);
  if (!loaded.tokenizer.empty()) {
    QUENCH_CHECK_AS(
        ErrorCode::not_found, is_tokenizer_word(loaded.tokenizer) || fs::exists(loaded.tokenizer),
        "the run of an older version has its tokenizer at {}, which does not exist here; name it with --tokenizer",
        loaded.tokenizer);
    return load_tokenizer(loaded.tokenizer);
  }
  if (!holds_tokenizer(loaded.small_files)) return nullptr;
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(loaded.small_files);
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  loaded.fingerprint.empty() || loaded.fingerprint == fingerprint_text(*tokenizer),
                  "the tokenizer in {} is not the one of the checkpoint (fingerprint {}, expected {}); name that one "
                  "with --tokenizer",
                  loaded.small_files.string(), fingerprint_text(*tokenizer), loaded.fingerprint);
  return tokenizer;
}

void check_model_tokenizer(const LoadedModel& loaded, const Tokenizer& tokenizer) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, tokenizer.vocab_size() <= loaded.config.vocab_size,
                  "the tokenizer has {} tokens, but the model's vocabulary only {}", tokenizer.vocab_size(),
                  loaded.config.vocab_size);
}

std::unique_ptr<Tokenizer> require_model_tokenizer(const LoadedModel& loaded, const std::string& name) {
  std::unique_ptr<Tokenizer> tokenizer = find_model_tokenizer(loaded, name);
  QUENCH_CHECK_AS(ErrorCode::not_found, tokenizer != nullptr, "{}; name one with --tokenizer",
                  loaded.missing.empty() ? no_tokenizer_text() : loaded.missing);
  check_model_tokenizer(loaded, *tokenizer);
  return tokenizer;
}

TokenIdChoice model_token_ids(const LoadedModel& loaded, const Tokenizer* tokenizer) {
  TokenIdSources sources = token_id_sources(loaded.small_files, loaded.config, tokenizer);
  sources.named = loaded.named_ids;
  if (!loaded.adapter_files.empty()) sources.models_tokenizer = true;
  // A checkpoint outside its run folder has token ids but no reference to their tokenizer.
  if (tokenizer != nullptr && !loaded.missing.empty()) sources.models_tokenizer = end_among(sources.config, *tokenizer);
  TokenIdChoice ids = choose_token_ids(sources);
  // No warning for a model folder's own tokenizer.
  if (!sources.models_tokenizer)
    for (const std::string& disagreement : ids.disagreements) QUENCH_LOG_WARN("token ids: {}", disagreement);
  return ids;
}

void set_threads(int threads) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, threads >= 0 && threads <= kMaxThreads,
                  "--threads is {}, expected 0 (all) to {}", threads, kMaxThreads);
  set_thread_count(threads);
}

void limit_gpu_memory(const std::string& device, const std::string& size) {
  if (!size.empty()) limit_memory(parse_device(device), size, "--memory-limit");
}

TrainingFacts training_of(const fs::path& path) {
  const ModelSource source = ModelSource::open(path);
  if (!source.is_trained()) return training_in(path);
  const fs::path checkpoint = source.checkpoint();
  const CheckpointState state = read_manifest(checkpoint).state;
  const RunConfig config = run_config_from_json(state.config, checkpoint.string(), {}, {.data = false, .files = false});
  TrainedState trained{.step = state.step, .tokens = state.tokens_seen, .data = stored_data_text(state)};
  if (const fs::path run = source.run(); !run.empty())
    if (const auto last = read_validation_losses((run / run_files::kMetricsFolder).string(), state.step).last)
      trained.validation_loss = last->loss;
  return training_facts(config, trained);
}

void print_json(const Json& json) {
  std::printf("%s\n", json.dump(2).c_str());
}

}  // namespace quench
