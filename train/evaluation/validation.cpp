#include "train/evaluation/validation.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "data/sampling/loader.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

// Sums over the ranks' batches: tokens, and the units, loss and metrics of an objective.
struct Sums {
  std::vector<double> values;

  void add(const std::vector<double>& more) {
    values.resize(more.size());
    for (std::size_t i = 0; i < more.size(); ++i) values[i] += more[i];
  }
};

// Loss and metrics of one batch.
std::vector<double> objective_sums(const nn::CausalLm& model, const Batch& batch, Objective& objective,
                                   std::int64_t chunk_rows) {
  const std::int64_t tokens = batch.input_ids.numel();
  const Device device = model.options().device;
  const ObjectiveInput in{.batch = batch,
                          .ids = batch.input_ids.view({tokens}).to(device),
                          .labels = batch.labels.view({tokens}).to(device),
                          .context = batch_context(model, batch)};
  objective.prepare(in);
  const Tensor metrics = Tensor::empty({std::ssize(objective.metric_names())}, DType::f32, device);
  const autograd::Variable loss = objective.loss(in, 1.0f, {.chunk_rows = chunk_rows}, metrics);
  std::vector<double> sums{static_cast<double>(*loss.value().to(Device{}).data<float>())};
  const Tensor host = metrics.to(Device{});
  for (std::int64_t i = 0; i < host.numel(); ++i) sums.push_back(static_cast<double>(host.data<float>()[i]));
  return sums;
}

// Summed cross-entropy of one batch; where its last layer is in another stage: 0.
double loss_sum(const nn::CausalLm& model, const Batch& batch, const ValidationOptions& options) {
  const std::int64_t tokens = batch.input_ids.numel();
  const Device device = model.options().device;
  const Tensor ids = batch.input_ids.view({tokens}).to(device);
  nn::ForwardContext context = batch_context(model, batch);
  const auto loss = [&] {
    const autograd::Variable sum =
        model.loss(ids, batch.labels.view({tokens}).to(device), context, 1.0f, {.chunk_rows = options.loss_chunk_rows});
    return static_cast<double>(*sum.value().to(Device{}).data<float>());
  };
  if (options.stages == nullptr) return loss();
  distributed::StageExchange& stages = *options.stages;
  const std::int64_t rows = hidden_rows(batch, *options.ranks);
  stages.begin(distributed::forward_schedule(stages.place(), 1), std::span(&rows, 1), model.config().hidden_size,
               model.options().dtype);
  double sum = 0;
  for (context.chunk = 0; context.chunk < model.chunks().size(); ++context.chunk) {
    context.chunk_input = autograd::Variable();
    if (const Tensor states = stages.take(); states.defined()) context.chunk_input = autograd::Variable(states);
    const bool ends = model.ends(context.chunk);
    if (ends) sum = loss();
    stages.give(ends ? Tensor() : model.hidden(ids, context).value());
  }
  return sum;
}

void set_values(const Objective& objective, const std::vector<double>& sums, EvaluationMetrics& metrics) {
  const double units = sums[1];
  std::vector<double> means;
  for (std::size_t i = 2; i < sums.size(); ++i) means.push_back(units > 0 ? sums[i] / units : std::nan(""));
  metrics.values = {{"loss", means.front()}};
  const std::vector<std::string> names = objective.metric_names();
  const std::vector<double> values = objective.reported({means.begin() + 1, means.end()});
  for (std::size_t i = 0; i < names.size(); ++i)
    if (std::isfinite(values[i])) metrics.values.emplace_back(names[i], values[i]);
}

}  // namespace

EvaluationMetrics validate(const nn::CausalLm& model, std::shared_ptr<const Dataset> data,
                           const ValidationOptions& options) {
  const autograd::NoGrad no_grad;
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t rows = data->row_count();
  if (options.batches > 0)
    rows = std::min(rows, static_cast<std::uint64_t>(options.batches * options.micro_batch_size));
  const distributed::Ranks& ranks = *options.ranks;
  const BatchSplit geometry{options.micro_batch_size, options.micro_batch_size * ranks.mesh.data(), ranks.data_rank(),
                            ranks.mesh.data()};
  const Device device = model.options().device;
  BatchLoader loader(std::move(data), geometry, {.end_sample = rows, .device = device, .part = sequence_part(ranks)});
  EvaluationMetrics metrics;
  metrics.name = kValidation;
  Sums sums;
  sums.values.resize(options.objective != nullptr ? 3 + options.objective->metric_names().size() : 2);
  while (const std::optional<Batch> batch = loader.next()) {
    if (ranks.is_single() && batch->valid_tokens == 0) continue;
    const auto valid = static_cast<double>(batch->valid_tokens);
    if (options.objective != nullptr) {
      std::vector<double> own = objective_sums(model, *batch, *options.objective, options.loss_chunk_rows);
      own.insert(own.begin(), {valid, static_cast<double>(options.objective->units(*batch))});
      sums.add(own);
      continue;
    }
    sums.add({valid, loss_sum(model, *batch, options)});
  }
  if (options.stages != nullptr) options.stages->finish_sends();
  if (!ranks.counts()) std::ranges::fill(sums.values, 0.0);
  distributed::all_reduce_numbers(*ranks.host, sums.values, distributed::ReduceOp::sum, "validation loss");
  metrics.tokens = static_cast<std::int64_t>(sums.values[0]);
  if (options.objective != nullptr) {
    set_values(*options.objective, sums.values, metrics);
  } else {
    const double mean = metrics.tokens > 0 ? sums.values[1] / sums.values[0] : std::nan("");
    metrics.values = {{"loss", mean}, {"perplexity", std::exp(mean)}};
  }
  metrics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return metrics;
}

}  // namespace quench
