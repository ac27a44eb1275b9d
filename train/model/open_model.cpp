// Model::open(): weights, adapters and their base.

#include <future>

#include "autograd/tensor_parallel.h"
#include "core/json/json_member.h"
#include "core/ops/elementwise.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/doctor/kernel_check.h"
#include "train/model/model.h"
#include "train/model_folder/model_folder.h"
#include "train/model_folder/peft_folder.h"
#include "train/model_folder/stored_mtp.h"
#include "train/session/adapter_setup.h"
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

nn::ParameterOptions parameter_options(const ModelOptions& options) {
  nn::ParameterOptions result;
  result.device = parse_device(options.device);
  check_kernels(result.device);
  result.grad_dtype = DType::f32;
  result.trainable = options.trainable;
  return result;
}

// Starts the concurrent work. Invalid future if there is none. get() waits and rethrows; the destructor waits too.
// `complete`: reading allocates no weights and attaches no kernels; otherwise the work is left out.
std::future<void> begin_loading_work(const LoadingWork& start, const Model& opened, bool complete = true) {
  const std::function<void()> work = start ? start(opened) : std::function<void()>();
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

// True if the run's adapters have a base quantized in its folder: the hash of stored values does not identify the
// weights.
bool trains_over_codes(const Json& config) {
  return find_text(config, {"lora", "base"}) == "stored";
}

// Scales of a slice's key heads.
Tensor scales_of_slice(const Tensor& scales, const autograd::TensorExchange& slices) {
  const std::int64_t heads = scales.numel() / 2, own = heads / slices.size();
  const Tensor result = Tensor::empty({2 * own}, scales.dtype(), scales.device());
  for (const std::int64_t half : {0, 1})
    result.narrow(0, half * own, own).copy_from(scales.narrow(0, half * heads + slices.rank() * own, own));
  return result;
}

std::optional<NewRows> rows_beyond(std::int64_t stored_vocabulary) {
  return stored_vocabulary > 0 ? std::optional(NewRows()) : std::nullopt;
}

}  // namespace

Model::Model(ModelSource source) : source_(std::move(source)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

std::unique_ptr<nn::CausalLm> Model::make_model(nn::ParameterOptions parameters, nn::KvCacheElements cache) const {
  if (slices_ != nullptr) {
    parameters.tensor = {slices_->rank(), slices_->size()};
    for (Tensor& scales : cache.scales) scales = scales_of_slice(scales, *slices_);
  }
  auto made = std::make_unique<nn::CausalLm>(stored_.config, parameters);
  made->set_tensor_exchange(slices_.get());
  made->set_kv_cache(std::move(cache));
  return made;
}

Model Model::open(const fs::path& path, const ModelOptions& options) {
  Model opened(ModelSource::open(path));
  opened.mtp_ = options.mtp;
  opened.slices_ = options.slices;
  require_weights(path, options.weights);
  if (!opened.source_.is_trained()) {
    opened.open_folder(options);
    return opened;
  }
  const std::vector<fs::path> checkpoints = chosen_checkpoints(opened.source_, options.weights);
  opened.open_checkpoint(checkpoints.front(), options);
  if (!options.weights.steps.empty()) {
    restore_mean(checkpoints, *opened.model_);
  } else if (options.weights.given()) {
    CheckpointReader reader(checkpoints.front());
    restore_averages(reader, *opened.model_);
  }
  return opened;
}

void Model::open_folder(const ModelOptions& options) {
  nn::ParameterOptions parameters = parameter_options(options);
  const fs::path& folder = source_.path();
  stored_.config = read_model_config(source_);
  stored_.files = folder;
  parameters.dtype = chosen_dtype(options.dtype, stored_.config.dtype);
  if (source_.is_quantized(stored_.config.source)) {
    QUENCH_CHECK_AS(ErrorCode::unsupported, !options.trainable,
                    "{}: quantized weights have no gradients; use the unquantized model", folder.string());
    QUENCH_CHECK_AS(ErrorCode::unsupported, slices_ == nullptr,
                    "{}: quantized weights are not split among processes; take the unquantized model, or one process",
                    folder.string());
    is_quantized_ = parameters.deferred = true;
  }
  expect_adapter(options.adapter);
  if (mtp_ == MtpLayers::all && holds_mtp(folder, stored_.config))
    stored_.config.mtp.layers = stored_.config.mtp.declared;
  model_ = make_model(parameters, choose_kv_cache(options.kv_cache, folder, stored_.config, parameters.device));
  std::future<void> other_work = begin_loading_work(options.work, *this, !is_quantized_);
  load_weights(*model_, folder, is_quantized_, {}, rows_beyond(peft_.stored_vocabulary));
  if (other_work.valid()) other_work.get();
}

void Model::open_checkpoint(const fs::path& folder, const ModelOptions& options) {
  auto reader = std::make_shared<CheckpointReader>(folder);
  const fs::path run = source_.run();
  const bool adapters_alone = holds_adapters_alone(reader->state());
  QUENCH_CHECK(!options.on_demand || !options.weights.given(), "other weights than stored ones are not read on demand");
  if (options.on_demand && !adapters_alone) return open_on_demand(folder, std::move(reader), options);
  nn::ParameterOptions parameters = parameter_options(options);
  stored_ = stored_model(reader->state(), folder, run);
  if (mtp_ == MtpLayers::left_out) stored_.config.mtp.layers = 0;
  if (mtp_ == MtpLayers::all && adapters_alone)
    if (const fs::path base = base_path(reader->state(), folder.string(), run);
        !base.empty() && fs::exists(base) && holds_mtp(base, stored_.config))
      stored_.config.mtp.layers = stored_.config.mtp.declared;
  const DType stored = stored_dtype(reader->manifest()), wanted = chosen_dtype(options.dtype, stored);
  parameters.dtype = stored;
  QUENCH_CHECK_AS(ErrorCode::unsupported, slices_ == nullptr || !adapters_alone,
                  "{}: adapters are not split among processes; merge them (quench merge-lora), or take one process",
                  folder.string());
  model_ = make_model(parameters, choose_kv_cache(options.kv_cache, {}, stored_.config, parameters.device));
  std::future<void> other_work;
  if (wanted == stored) other_work = begin_loading_work(options.work, *this, !adapters_alone);
  if (adapters_alone) {
    adapters_ = restore_adapted(*reader, model_, folder.string(), run);
    base_.path = find_text(reader->state().config, {"model", "path"});
    if (!trains_over_codes(reader->state().config)) base_.weights.hash = stored_base_hash(reader->state());
    base_.weights.dtype = stored;
  } else {
    restore_parameters(*reader, *model_);
  }
  // For save() alone. Without MTP layers, rules that name only those would match nothing.
  if (mtp_ != MtpLayers::left_out) {
    scales_ = stored_scales(*reader, folder.string());
    trained_ = stored_scheme(*reader, stored_.config, folder.string());
  }
  if (other_work.valid()) other_work.get();
  if (wanted == stored) return;
  convert_to(wanted);
  if (other_work = begin_loading_work(options.work, *this); other_work.valid()) other_work.get();
}

void Model::open_on_demand(const fs::path& folder, std::shared_ptr<CheckpointReader> reader,
                           const ModelOptions& options) {
  stored_ = stored_model(reader->state(), folder, source_.run());
  if (mtp_ == MtpLayers::left_out) stored_.config.mtp.layers = 0;
  nn::ParameterOptions parameters;
  parameters.device = Device{DeviceType::meta};
  parameters.dtype = chosen_dtype(options.dtype, stored_dtype(reader->manifest()));
  parameters.trainable = false;
  model_ = std::make_unique<nn::CausalLm>(stored_.config, parameters);
  whole_ = read_on_demand(std::move(reader));
}

void Model::convert_to(DType dtype) {
  nn::ParameterOptions parameters = model_->options();
  parameters.dtype = dtype;
  auto converted = make_model(parameters, {});
  converted->set_kv_cache(model_->kv_cache());
  std::shared_ptr<recipes::Adapters> adapters;
  if (adapters_) {
    adapters = std::make_shared<recipes::Adapters>(*converted, adapters_->layers(), adapters_->options(), parameters);
    adapters->attach();
  }
  const auto from = model_->parameters(), to = converted->parameters();
  for (std::size_t i = 0; i < from.size(); ++i) cast({from[i]->variable.value(), to[i]->variable.value()});
  model_ = std::move(converted);
  adapters_ = std::move(adapters);
}

// The vocabulary of an adapter, and its tokenizer.
void Model::expect_adapter(const fs::path& folder) {
  if (folder.empty()) return;
  peft_.tokenizer = holds_tokenizer(folder) ? folder : fs::path();
  const std::optional<std::int64_t> rows = adapter_vocabulary(folder);
  if (!rows || *rows <= stored_.config.vocab_size) return;
  const std::int64_t before = std::exchange(stored_.config.vocab_size, *rows);
  if (peft_.stored_vocabulary == 0) peft_.stored_vocabulary = before;
  stored_.config.source.set("vocab_size", *rows);
}

// Weights of the folder, with the rows of expect_adapter().
void Model::read_again() {
  if (adapters_) std::exchange(adapters_, nullptr)->detach();
  const nn::ParameterOptions options = model_->options();
  nn::KvCacheElements cache = model_->kv_cache();
  model_ = nullptr;
  model_ = std::make_unique<nn::CausalLm>(stored_.config, options);
  model_->set_kv_cache(std::move(cache));
  load_weights(*model_, stored_.files, is_quantized_, {}, rows_beyond(peft_.stored_vocabulary));
}

void Model::use_adapter(const fs::path& folder, const AdapterOptions& adapter) {
  if (folder.empty()) return;
  QUENCH_CHECK_AS(ErrorCode::unsupported, slices_ == nullptr,
                  "{}: adapters are not split among processes; merge them (quench merge-lora), or take one process",
                  folder.string());
  const std::optional<std::int64_t> rows = adapter_vocabulary(folder);
  const bool grows = rows && *rows > stored_.config.vocab_size;
  QUENCH_CHECK_AS(ErrorCode::unsupported, !grows || !source_.is_trained(),
                  "the adapter in {} has a vocabulary of {}, the checkpoint one of {}; load it over the model folder "
                  "that it was trained from",
                  folder.string(), rows.value_or(0), stored_.config.vocab_size);
  expect_adapter(folder);
  // Rows of an earlier adapter are not those of the base.
  if (grows || (peft_.has_rows && !source_.is_trained())) read_again();
  peft_.has_rows = rows.has_value();
  nn::ParameterOptions options = model_->options();
  options.trainable = adapter.trainable;
  std::shared_ptr<recipes::Adapters> loaded = load_adapter(*model_, folder, options);
  if (adapters_) adapters_->detach();
  adapters_ = std::move(loaded);
  adapters_->attach();
  if (adapter.trainable) recipes::freeze_base(*model_);
  peft_.folder = folder;
  base_ = {source_.is_model() ? source_.path().string() : std::string(), {}};
}

void Model::merge_adapters() {
  if (adapters_) std::exchange(adapters_, nullptr)->merge();
}

}  // namespace quench
