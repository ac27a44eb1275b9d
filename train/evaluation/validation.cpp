#include "train/evaluation/validation.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "data/sampling/loader.h"
#include "train/step/train_step.h"

namespace quench {

EvaluationMetrics validate(const nn::CausalLm& model, std::shared_ptr<const Dataset> data,
                           const ValidationOptions& options) {
  const autograd::NoGrad no_grad;
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t rows = data->row_count();
  if (options.batches > 0)
    rows = std::min(rows, static_cast<std::uint64_t>(options.batches * options.micro_batch_size));
  const std::int64_t count = options.ranks != nullptr ? options.ranks->size : 1;
  const BatchSplit geometry{options.micro_batch_size, options.micro_batch_size * count,
                            options.ranks != nullptr ? options.ranks->rank : 0, count};
  const Device device = model.options().device;
  BatchLoader loader(std::move(data), geometry, {.end_sample = rows, .device = device});
  double loss = 0;
  EvaluationMetrics metrics;
  metrics.name = kValidation;
  while (const std::optional<Batch> batch = loader.next()) {
    if (options.ranks == nullptr && batch->valid_tokens == 0) continue;
    const std::int64_t tokens = batch->input_ids.numel();
    const autograd::Variable sum =
        model.loss(batch->input_ids.view({tokens}).to(device), batch->labels.view({tokens}).to(device),
                   batch_context(model, *batch), 1.0f, {.chunk_rows = options.loss_chunk_rows});
    loss += static_cast<double>(*sum.value().to(Device{}).data<float>());
    metrics.tokens += batch->valid_tokens;
  }
  if (options.ranks != nullptr) {
    const Tensor sums = Tensor::from_values<double>({2}, std::array{loss, static_cast<double>(metrics.tokens)});
    options.ranks->host->all_reduce(sums, distributed::ReduceOp::sum, "validation loss").wait();
    loss = sums.data<double>()[0];
    metrics.tokens = static_cast<std::int64_t>(sums.data<double>()[1]);
  }
  const double mean = metrics.tokens > 0 ? loss / static_cast<double>(metrics.tokens) : std::nan("");
  metrics.values = {{"loss", mean}, {"perplexity", std::exp(mean)}};
  metrics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return metrics;
}

}  // namespace quench
