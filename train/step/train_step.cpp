#include "train/step/train_step.h"

#include <algorithm>

#include "core/device/trace_range.h"
#include "core/ops/gemm.h"
#include "core/ops/global_norm.h"

namespace quench {
namespace {

// Tokens without padding.
std::int64_t count_tokens(const Batch& batch) {
  std::int64_t count = 0;
  for (const SequenceRange& sequence : batch.sequences) count += sequence.q_length;
  return count;
}

// Rows of the batch's sequences, on the device; without pairs if nothing is padded.
autograd::TokenPermutation rows_without_padding(const Batch& batch, Device device) {
  const std::int64_t all = batch.input_ids.numel();
  if (count_tokens(batch) == all) return {};
  std::vector<std::int32_t> rows;
  for (const SequenceRange& sequence : batch.sequences)
    for (std::int64_t row = sequence.q_begin; row < sequence.q_begin + sequence.q_length; ++row)
      rows.push_back(static_cast<std::int32_t>(row));
  return autograd::select_tokens(rows, all, device);
}

}  // namespace

TrainStep::TrainStep(nn::CausalLm& model, nn::Optimizer& optimizer, TrainStepOptions options)
    : model_(model),
      optimizer_(optimizer),
      options_(std::move(options)),
      cross_entropy_(model),
      objective_(options_.objective != nullptr ? options_.objective : &cross_entropy_),
      one_stage_(options_.stages != nullptr ? nullptr
                                            : std::make_unique<distributed::StageExchange>(
                                                  *distributed::Ranks::single(), 1, model.options().device)),
      stages_(options_.stages != nullptr ? options_.stages : one_stage_.get()),
      outputs_(1 + static_cast<std::int64_t>(objective_->metric_names().size())) {
  const MemoryScope scope(MemoryCategory::optimizer);
  const Device device = model.options().device;
  squared_norm_ = Tensor::empty({1}, DType::f64, device);
  scale_ = Tensor::empty({1}, DType::f32, device);
  if (options_.activations.count(autograd::SavePolicy::offload) > 0)
    offloader_ = std::make_unique<autograd::ActivationOffloader>(device, options_.activations);
  if (options_.state_streamed)
    stream_ = std::make_unique<nn::StateStream>(optimizer, options_.state_offload_ratio, device);
  else if (options_.state_offload_ratio > 0)
    state_ = std::make_unique<nn::StateOffloader>(optimizer.parameter_states(), options_.state_offload_ratio, device,
                                                  model.config().all_layers());
  if (options_.update_in_backward) {
    QUENCH_CHECK(
        options_.max_norm == 0 && state_ == nullptr && stages_ == one_stage_.get(),
        "TrainStep: update_in_backward with clipping, offloaded state that is not streamed, or pipeline stages");
    in_backward_ = std::make_unique<UpdateInBackward>(model, optimizer, options_.sharded);
  }
}

void TrainStep::make_report_buffers(std::int64_t micro_batches) {
  const std::int64_t values = micro_batches * outputs_ + 1 + amax_count();
  if (device_report_.defined() && device_report_.numel() == values) return;
  const MemoryScope scope(MemoryCategory::optimizer);
  const Device device = model_.options().device;
  device_report_ = Tensor::empty({values}, DType::f32, device);
  host_report_ = Tensor::empty_pinned({values}, DType::f32, device);
}

void TrainStep::gather_amax() {
  if (amax_count() == 0) return;
  const Tensor& recorded = options_.scaling->recorded();
  // Bit patterns of non-negative f32 order as i32; NaN is largest.
  distributed::all_reduce(*options_.ranks->world, recorded.reinterpret(DType::i32), distributed::ReduceOp::max,
                          "amax of operands");
  if (options_.scaling->waits_for_amax())
    device_report_.narrow(0, device_report_.numel() - amax_count(), amax_count()).copy_from(recorded);
}

std::vector<std::int64_t> TrainStep::count_units(std::span<const Batch> micro_batches) const {
  std::vector<std::int64_t> counts;
  for (const Batch& batch : micro_batches) {
    counts.push_back(objective_->units(batch));
    counts.push_back(batch.valid_tokens);
  }
  // A planned rank is alone in its host group.
  if (!options_.ranks->counts() && options_.ranks->host->size() > 1) std::ranges::fill(counts, 0);
  distributed::all_reduce_numbers(*options_.ranks->host, counts, distributed::ReduceOp::sum, "valid tokens");
  return counts;
}

Tensor TrainStep::forward(const MicroBatch& of, std::size_t chunk, const Tensor& input, const nn::UnitHooks* hooks,
                          Recorded& pass) {
  const Batch& batch = *of.batch;
  const std::int64_t tokens = batch.input_ids.numel();
  const Device device = model_.options().device;
  pass.in = std::make_unique<ObjectiveInput>(ObjectiveInput{.batch = batch,
                                                            .ids = batch.input_ids.view({tokens}).to(device),
                                                            .labels = batch.labels.view({tokens}).to(device),
                                                            .context = batch_context(model_, batch)});
  ObjectiveInput& in = *pass.in;
  objective_->prepare(in);
  nn::ForwardContext& context = in.context;
  context.recompute = options_.recompute;
  if (hooks != nullptr) context.hooks.push_back(hooks);
  if (in_backward_ && of.last) context.hooks.push_back(in_backward_->hooks());
  context.activations = options_.activations;
  context.chunk = chunk;
  if (input.defined()) {
    context.chunk_input = autograd::Variable::leaf(input);
    pass.input = context.chunk_input.gradient();
  }
  if (options_.sharded != nullptr) options_.sharded->begin_forward(chunk);
  context.expert_load = expert_load_;
  if (const std::int64_t layers = model_.config().routed_layers(); layers > 0) {
    // Micro-batches are weighted by their share of the step's units.
    const Batch& whole = whole_of(batch);
    if (batch.part)
      context.part =
          static_cast<float>(count_tokens(batch)) / static_cast<float>(std::max<std::int64_t>(1, count_tokens(whole)));
    const float share = of.scale * static_cast<float>(objective_->units(whole)) / static_cast<float>(layers);
    context.router_terms = {.balance = options_.router_terms.balance * share, .z = options_.router_terms.z * share};
    if (context.router_terms.wanted() || expert_load_ != nullptr)
      context.counted_rows = rows_without_padding(batch, device);
  }
  pass.tape = std::make_unique<autograd::Tape>(options_.recompute);
  pass.tape->set_pass(of.pass);
  pass.tape->set_offloader(offloader_.get());
  const TraceRange range(device, "forward");
  const autograd::TapeScope scope(*pass.tape);
  if (!model_.ends(chunk)) {
    const autograd::Variable states = model_.hidden(in.ids, context);
    context.chunk_input = autograd::Variable();
    pass.output.set_gradient(states.gradient());  // without the value, which is sent
    return states.value();
  }
  pass.output =
      objective_->loss(in, of.scale, options_.loss, outputs_ > 1 ? of.out.narrow(0, 1, outputs_ - 1) : Tensor());
  Tensor(of.out).narrow(0, 0, 1).copy_from(pass.output.value());
  return {};
}

Tensor TrainStep::backward(const MicroBatch& of, std::size_t chunk, const Tensor& gradient, Recorded pass) {
  const TraceRange range(model_.options().device, "backward");
  if (options_.sharded != nullptr) options_.sharded->begin_backward(of.last, chunk);
  if (gradient.defined())
    pass.tape->backward(pass.output, gradient);
  else
    pass.tape->backward(pass.output);
  if (options_.sharded != nullptr) options_.sharded->end_backward();
  return pass.input != nullptr ? pass.input->value() : Tensor();
}

void TrainStep::run_passes(std::span<const MicroBatch> micro_batches, nn::StateOffloader::Step& state) {
  std::vector<distributed::PipelineOp> ops =
      distributed::pipeline_schedule(stages_->place(), std::ssize(micro_batches));
  std::erase_if(ops, [&](const distributed::PipelineOp& op) {
    return micro_batches[static_cast<std::size_t>(op.micro_batch)].scale == 0;
  });
  std::vector<std::int64_t> rows;
  for (const MicroBatch& one : micro_batches) rows.push_back(hidden_rows(*one.batch, *options_.ranks));
  stages_->begin(ops, rows, model_.config().hidden_size, model_.options().dtype);
  std::map<std::pair<int, std::int64_t>, Recorded> recorded;
  for (const auto& [is_forward, chunk, number] : ops) {
    const MicroBatch& one = micro_batches[static_cast<std::size_t>(number)];
    const auto index = static_cast<std::size_t>(chunk);
    const Tensor input = stages_->take();
    if (is_forward)
      stages_->give(forward(one, index, input, state.hooks(one.first, one.last), recorded[{chunk, number}]));
    else
      stages_->give(backward(one, index, input, std::move(recorded.extract({chunk, number}).mapped())));
  }
  stages_->finish_sends();
}

void TrainStep::sum_shared_table() {
  nn::Parameter* table = model_.shared_table();
  if (table == nullptr || !table->variable.requires_grad()) return;
  const auto& gradient = table->variable.gradient();
  if (!gradient->has_value()) gradient->target().tensor.zero();
  stages_->sum_ends(gradient->value());
}

void TrainStep::begin_updates(const std::optional<StepUpdate>& update) {
  if (!update) return in_backward_->begin(nullptr);
  in_backward_->begin([this, update = *update](nn::ParameterRange part, nn::ParameterRange next, const Tensor& scale) {
    const auto step = [&](nn::ParameterRange range) {
      optimizer_.step(update.lr, update.number, scale, range);
      optimizer_.zero_grad(range);
    };
    if (stream_)
      stream_->update_one(part, next, step);
    else
      step(part);
  });
}

GradientReport TrainStep::accumulate(std::span<const Batch> micro_batches, std::int64_t step,
                                     const std::optional<StepUpdate>& update) {
  optimizer_.zero_grad();
  nn::StateOffloader::Step state(state_.get());
  GradientReport report;
  const std::vector<std::int64_t> counts = count_units(micro_batches);
  for (std::size_t i = 0; i < counts.size(); i += 2) {
    report.units += counts[i];
    report.valid_tokens += counts[i + 1];
  }
  if (report.units == 0) {
    scale_.zero();  // read by apply()
    return report;
  }
  const float scale = 1.0f / static_cast<float>(report.units);
  const auto count = static_cast<std::int64_t>(micro_batches.size());
  make_report_buffers(count);
  const GemmTuning tuning;
  // Global micro-batch index: random draws are independent of the world size, and equal on ranks with the same tokens.
  const std::int64_t first_pass = options_.ranks->stage_rank() / options_.ranks->mesh.tensor * count;
  std::int64_t done_units = 0;
  std::vector<MicroBatch> runs;
  for (std::int64_t i = 0; i < count; ++i) {
    MicroBatch& one = runs.emplace_back();
    one.batch = &micro_batches[static_cast<std::size_t>(i)];
    one.pass = static_cast<std::uint64_t>(step) << 32 | static_cast<std::uint64_t>(first_pass + i);
    one.out = device_report_.narrow(0, i * outputs_, outputs_);
    const std::int64_t units = counts[static_cast<std::size_t>(2 * i)];
    if (units == 0) continue;
    one.first = done_units == 0;
    done_units += units;
    one.last = done_units == report.units;
    one.scale = scale;
  }
  Tensor losses = device_report_.narrow(0, 0, count * outputs_);
  losses.zero();
  if (in_backward_) begin_updates(update);
  run_passes(runs, state);
  if (in_backward_) in_backward_->end();
  sum_shared_table();
  if (!options_.ranks->counts()) losses.zero();
  distributed::all_reduce(*options_.ranks->world, losses, distributed::ReduceOp::sum, "loss");
  gather_amax();
  optimizer_.squared_grad_norm(squared_norm_, {0, optimizer_.parameters().size()},
                               in_backward_ ? in_backward_->norms() : Tensor());
  if (options_.sharded != nullptr) options_.sharded->sum_squared_norm(squared_norm_);
  stages_->sum(squared_norm_);
  clip_scale({.squared_norm = squared_norm_,
              .max_norm = static_cast<float>(options_.max_norm),
              .norm = device_report_.narrow(0, count * outputs_, 1),
              .scale = scale_});
  state.end();
  if (device_report_.device().is_meta()) return report;
  // Single host synchronization per step: earlier work is queued ahead, and the optimizer's work, queued right after,
  // hides the next step's launches.
  host_report_.copy_from(device_report_);
  const float* values = host_report_.data<float>();
  if (amax_count() > 0 && options_.scaling->waits_for_amax())
    options_.scaling->observe({values + count * outputs_ + 1, static_cast<std::size_t>(amax_count())});
  std::vector<double> sums(static_cast<std::size_t>(outputs_));
  for (std::int64_t i = 0; i < count * outputs_; ++i)
    sums[static_cast<std::size_t>(i % outputs_)] += static_cast<double>(values[i]);
  report.loss = sums.front();
  report.metrics = objective_->reported({sums.begin() + 1, sums.end()});
  report.grad_norm = static_cast<double>(values[count * outputs_]);
  return report;
}

void TrainStep::apply(double lr, std::int64_t number) {
  const TraceRange range(model_.options().device, "optimizer");
  const auto update_resident = [&](nn::ParameterRange part) {
    optimizer_.step(lr, number, scale_, part);
    optimizer_.zero_grad(part);
  };
  const auto update_part = [&](nn::ParameterRange part) {
    if (stream_)
      stream_->update(part, update_resident);
    else
      update_resident(part);
  };
  // Parameters that the next pass reads first are updated first, and all-gathered during the remaining update.
  std::size_t leading = options_.sharded != nullptr ? options_.sharded->leading_parameters() : 0;
  if (in_backward_) {
    if (stream_) stream_->end_update();
    for (const nn::ParameterRange part : in_backward_->left()) update_part(part);
    leading = 0;
  } else {
    if (leading > 0) {
      update_part({0, leading});
      options_.sharded->parameters_changed();
      options_.sharded->gather_leading();
    }
    update_part({leading, optimizer_.parameters().size()});
  }
  if (options_.scaling != nullptr) options_.scaling->advance();
  if (options_.sharded == nullptr) return;
  options_.sharded->parameters_changed();
  if (leading == 0) options_.sharded->gather_leading();
}

void TrainStep::skip() {
  optimizer_.zero_grad();
  if (options_.scaling != nullptr) options_.scaling->advance();
}

void TrainStep::discard() {
  optimizer_.zero_grad();
  if (options_.scaling != nullptr) options_.scaling->discard();
}

}  // namespace quench
