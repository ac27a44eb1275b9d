#include "train/plan/run_check.h"

#include <algorithm>

#include "core/memory/allocator.h"
#include "core/system/log.h"
#include "nn/optim/table.h"
#include "train/check/check.h"
#include "train/plan/estimate.h"
#include "train/run_export/export_model.h"
#include "train/session/data_setup.h"
#include "train/session/model_setup.h"
#include "train/session/parallel_setup.h"
#include "train/step/meta_batch.h"

namespace quench {
namespace {

// Bytes per element of a frozen matrix, at least: `stored` folders hold two bits or more.
double least_frozen_bytes(recipes::BaseForm form, DType dtype) {
  switch (form) {
    case recipes::BaseForm::nf4: return 0.5;
    case recipes::BaseForm::stored: return 0.25;
    case recipes::BaseForm::float8: return 1;
    case recipes::BaseForm::dense: break;
  }
  return static_cast<double>(byte_size(dtype));
}

// Bytes per trained element: value, gradient and optimizer state on the device. Gradients that are freed in the
// backward pass are those of a layer or two.
double trained_bytes(const RunConfig& config, const nn::ParameterOptions& types) {
  const auto size = [](DType dtype) { return static_cast<double>(byte_size(dtype)); };
  const bool master = config.training.master_dtype && types.dtype != DType::f32;
  const nn::OptimizerEntry& optimizer = nn::find_optimizer(config.optimizer.name);
  const double moment = optimizer.moment_bytes > 0 ? optimizer.moment_bytes : size(config.optimizer.state);
  const double master_bytes = !master ? 0 : config.training.master_split ? 2 : 4;
  const double resident = (1 - config.optimizer.offload_ratio) * (optimizer.moments * moment + master_bytes);
  const double gradient = config.optimizer.update_in_backward ? 0 : size(types.grad_dtype);
  return size(types.dtype) + gradient + resident;
}

void require_possible(const RunConfig& config, Device device) {
  if (!is_present(device)) return;
  const double least = least_run_bytes(config, run_model_config(config));
  const double available = static_cast<double>(run_memory(config, device)->free_bytes);
  QUENCH_CHECK_AS(ErrorCode::out_of_memory, least <= available,
                  "this run needs more than {:.0f} MiB on {}, {:.0f} MiB are available: reduce "
                  "training.micro_batch_size ({}), data.seq_len ({}) or the model",
                  least / 0x1p20, device.to_string(), available / 0x1p20, config.training.micro_batch_size,
                  config.data.seq_len);
}

// Runs that are meant for a GPU: minutes to hours a step.
void warn_of_size(const RunConfig& config, const RunEstimate& estimate) {
  constexpr double kManyFlops = 1e13, kManyBytes = 8e9;
  const double flops = estimate.flops_per_token.total() * static_cast<double>(estimate.tokens_per_step);
  const auto bytes = static_cast<double>(estimate.total_bytes);
  if (flops < kManyFlops && bytes < kManyBytes) return;
  QUENCH_LOG_WARN(
      "this run takes {:.1f} GB of memory and {:.1e} FLOPs a step on the CPU, which computes about 1e11 to 1e12 in a "
      "second; smaller: the model, training.global_batch_size ({}), training.micro_batch_size ({}) or data.seq_len "
      "({})",
      bytes / 1e9, flops, global_batch_size(config), config.training.micro_batch_size, config.data.seq_len);
}

// Builds the model on the meta device, without memory.
void require_buildable(const RunConfig& config) {
  require_exportable(RunSession(ResolvedConfig(config), {.device = kMeta, .target = Device{}}));
  Allocator::of(kMeta).trim();
}

}  // namespace

double least_run_bytes(const RunConfig& config, const nn::ModelConfig& model) {
  const nn::ParameterOptions types = parameter_options(config, kMeta);
  const bool partly = !config.training.freeze.empty() || !config.training.train.empty();
  const double element = config.lora ? least_frozen_bytes(config.lora->base, types.dtype)
                         : partly    ? least_frozen_bytes(recipes::BaseForm::dense, types.dtype)
                                     : trained_bytes(config, types);
  const std::int64_t layers = model.num_hidden_layers - config.training.offload_layers;
  const double tokens =
      static_cast<double>(config.training.micro_batch_size) * static_cast<double>(config.data.seq_len) /
      static_cast<double>(config.parallel.context * config.parallel.tensor * config.parallel.pipeline);
  const double token = static_cast<double>(std::max<std::int64_t>(0, layers)) * static_cast<double>(model.hidden_size) *
                           static_cast<double>(byte_size(types.dtype)) +
                       12;
  return static_cast<double>(model.parameter_count()) * element / static_cast<double>(shard_ranks(config)) +
         tokens * token;
}

RunConfig require_startable(RunConfig config, const std::optional<Device>& device) {
  if (!device) {
    require_buildable(config);
    return config;
  }
  require_on_device(config, *device);
  require_possible(config, *device);
  if (config.export_model) require_buildable(config);
  const RunEstimate estimate = fit_run(config, *device);
  require_memory(estimate, *device);
  if (device->is_cpu()) warn_of_size(config, estimate);
  if (estimate.dropped_kept_weights)
    QUENCH_LOG_INFO("recipe.keep_weights is false: with kept quantized weights the run does not fit {}",
                    device->to_string());
  return config;
}

}  // namespace quench
