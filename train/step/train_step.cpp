#include "train/step/train_step.h"

#include <numeric>

#include "core/device/trace_range.h"
#include "core/ops/gemm.h"
#include "core/ops/global_norm.h"

namespace quench {
nn::ForwardContext batch_context(const nn::CausalLm& model, const Batch& batch) {
  return model.make_context(batch.sequences, batch.positions.view({batch.positions.numel()}));
}

TrainStep::TrainStep(nn::CausalLm& model, nn::Optimizer& optimizer, TrainStepOptions options)
    : model_(model), optimizer_(optimizer), options_(std::move(options)) {
  const MemoryScope scope(MemoryCategory::optimizer);
  const Device device = model.options().device;
  squared_norm_ = Tensor::empty({1}, DType::f64, device);
  scale_ = Tensor::empty({1}, DType::f32, device);
  if (options_.activations.count(autograd::SavePolicy::offload) > 0)
    offloader_ = std::make_unique<autograd::ActivationOffloader>(device, options_.activations);
  if (options.state_offload_ratio > 0)
    state_ = std::make_unique<nn::StateOffloader>(optimizer.parameter_states(), options.state_offload_ratio, device,
                                                  model.config().num_hidden_layers);
}

void TrainStep::make_report_buffers(std::int64_t micro_batches) {
  if (device_report_.defined() && device_report_.numel() == micro_batches + 1) return;
  const MemoryScope scope(MemoryCategory::optimizer);
  const Device device = model_.options().device;
  device_report_ = Tensor::empty({micro_batches + 1}, DType::f32, device);
  host_report_ = Tensor::empty_pinned({micro_batches + 1}, DType::f32, device);
}

std::vector<std::int64_t> TrainStep::valid_tokens(std::span<const Batch> micro_batches) const {
  std::vector<std::int64_t> counts;
  for (const Batch& batch : micro_batches) counts.push_back(batch.valid_tokens);
  if (options_.ranks != nullptr)
    distributed::all_reduce_numbers(*options_.ranks->host, counts, distributed::ReduceOp::sum, "valid tokens");
  return counts;
}

void TrainStep::run_micro_batch(const Batch& batch, std::uint64_t pass, float scale, bool last,
                                const nn::UnitHooks* hooks, Tensor loss_out) {
  const std::int64_t tokens = batch.input_ids.numel();
  const Device device = model_.options().device;
  nn::ForwardContext context = batch_context(model_, batch);
  context.recompute = options_.recompute;
  if (hooks != nullptr) context.hooks.push_back(hooks);
  context.activations = options_.activations;
  if (options_.sharded != nullptr) options_.sharded->begin_pass(last);
  context.expert_load = expert_load_;
  if (const std::int64_t layers = model_.config().experts.layer_count(); layers > 0) {
    // Micro-batches are weighted by their share of the step's tokens.
    const float share = scale * static_cast<float>(batch.valid_tokens) / static_cast<float>(layers);
    context.router_terms = {.balance = options_.router_terms.balance * share, .z = options_.router_terms.z * share};
  }
  autograd::Tape tape(options_.recompute);
  tape.set_pass(pass);
  tape.set_offloader(offloader_.get());
  autograd::Variable loss;
  {
    const TraceRange range(device, "forward");
    const autograd::TapeScope scope(tape);
    loss = model_.loss(batch.input_ids.view({tokens}).to(device), batch.labels.view({tokens}).to(device), context,
                       scale, options_.loss);
  }
  loss_out.copy_from(loss.value());
  const TraceRange range(device, "backward");
  tape.backward(loss);
  if (options_.sharded != nullptr) options_.sharded->end_pass();
}

GradientReport TrainStep::accumulate(std::span<const Batch> micro_batches, std::int64_t step) {
  optimizer_.zero_grad();
  nn::StateOffloader::Step state(state_.get());
  GradientReport report;
  const std::vector<std::int64_t> valid = valid_tokens(micro_batches);
  report.valid_tokens = std::accumulate(valid.begin(), valid.end(), std::int64_t{0});
  if (report.valid_tokens == 0) {
    scale_.zero();  // read by apply()
    return report;
  }
  const float scale = 1.0f / static_cast<float>(report.valid_tokens);
  const auto count = static_cast<std::int64_t>(micro_batches.size());
  make_report_buffers(count);
  const GemmTuning tuning;
  // Global micro-batch index: random draws are independent of the world size.
  const std::int64_t first_pass = options_.ranks != nullptr ? options_.ranks->rank * count : 0;
  std::int64_t done_tokens = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Tensor loss = device_report_.narrow(0, i, 1);
    const std::int64_t tokens = valid[static_cast<std::size_t>(i)];
    if (tokens == 0) {
      loss.zero();
      continue;
    }
    const bool first = done_tokens == 0;
    done_tokens += tokens;
    const bool last = done_tokens == report.valid_tokens;
    run_micro_batch(micro_batches[static_cast<std::size_t>(i)],
                    static_cast<std::uint64_t>(step) << 32 | static_cast<std::uint64_t>(first_pass + i), scale, last,
                    state.hooks(first, last), loss);
  }
  if (options_.ranks != nullptr)
    options_.ranks->world->all_reduce(device_report_.narrow(0, 0, count), distributed::ReduceOp::sum, "loss").wait();
  optimizer_.squared_grad_norm(squared_norm_);
  if (options_.sharded != nullptr) options_.sharded->sum_squared_norm(squared_norm_);
  clip_scale({.squared_norm = squared_norm_,
              .max_norm = static_cast<float>(options_.max_norm),
              .norm = device_report_.narrow(0, count, 1),
              .scale = scale_});
  state.end();
  if (device_report_.device().is_meta()) return report;
  // Single host synchronization per step: earlier work is queued ahead, and the optimizer's work, queued right after,
  // hides the next step's launches.
  host_report_.copy_from(device_report_);
  const float* values = host_report_.data<float>();
  for (std::int64_t i = 0; i < count; ++i) report.loss += static_cast<double>(values[i]);
  report.grad_norm = static_cast<double>(values[count]);
  return report;
}

void TrainStep::apply(double lr, std::int64_t step) {
  const TraceRange range(model_.options().device, "optimizer");
  const auto update = [&](nn::ParameterRange part) {
    optimizer_.step(lr, step, scale_, part);
    optimizer_.zero_grad(part);
  };
  // Parameters that the next pass reads first are updated first, and all-gathered during the remaining update.
  const std::size_t leading = options_.sharded != nullptr ? options_.sharded->leading_parameters() : 0;
  if (leading > 0) {
    update({0, leading});
    options_.sharded->parameters_changed();
    options_.sharded->gather_leading();
  }
  update({leading, optimizer_.parameters().size()});
  if (options_.sharded == nullptr) return;
  options_.sharded->parameters_changed();
  if (leading == 0) options_.sharded->gather_leading();
}

void TrainStep::discard() {
  optimizer_.zero_grad();
}

}  // namespace quench
