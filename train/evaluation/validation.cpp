#include "train/evaluation/validation.h"

#include <algorithm>
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
  const BatchGeometry geometry{options.micro_batch_size, options.micro_batch_size, 0, 1};
  const Device device = model.options().device;
  BatchLoader loader(std::move(data), geometry, {.end_sample = rows, .device = device});
  double loss = 0;
  EvaluationMetrics metrics;
  metrics.name = "validation";
  while (const std::optional<Batch> batch = loader.next()) {
    if (batch->valid_tokens == 0) continue;
    const std::int64_t tokens = batch->input_ids.numel();
    const autograd::Variable sum =
        model.loss(batch->input_ids.view({tokens}).to(device), batch->labels.view({tokens}).to(device),
                   batch_context(model, *batch), 1.0f, {.chunk_rows = options.loss_chunk_rows});
    loss += static_cast<double>(*sum.value().to(Device{}).data<float>());
    metrics.tokens += batch->valid_tokens;
  }
  const double mean = metrics.tokens > 0 ? loss / static_cast<double>(metrics.tokens) : 0.0;
  metrics.values = {{"loss", mean}, {"perplexity", std::exp(mean)}};
  metrics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return metrics;
}

}  // namespace quench
