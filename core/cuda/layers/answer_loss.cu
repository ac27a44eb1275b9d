// Losses of whole answers: a CTA for each answer's sum, one CTA for the loss of all pairs, a thread for each row's
// factor. Sums in f64 in the order of threads, then a tree: the same in every run.

#include "core/cuda/common/launch.h"
#include "core/cuda/common/reduce.cuh"
#include "core/ops/loss/answer_pair.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

__device__ double block_sum(double value, double* scratch) {
  return block_reduce<kThreads>(value, 0.0, scratch, Sum());
}

__global__ __launch_bounds__(kThreads) void answer_sums_kernel(const std::int32_t* ranges, const std::int32_t* owners,
                                                               const float* losses, double* logps) {
  __shared__ double scratch[33];
  const auto answer = static_cast<std::int32_t>(blockIdx.x);
  double sum = 0;
  for (std::int32_t row = ranges[2 * answer] + static_cast<std::int32_t>(threadIdx.x); row < ranges[2 * answer + 1];
       row += kThreads)
    if (owners[row] == answer) sum -= static_cast<double>(losses[row]);
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) logps[answer] = sum;
}

__global__ __launch_bounds__(kThreads) void answer_loss_kernel(AnswerLossPointers args, std::int64_t answers,
                                                               float scale, float* value, float* metrics,
                                                               int metric_count) {
  __shared__ double scratch[33];
  for (std::int64_t i = threadIdx.x; i < answers; i += kThreads) args.derivatives[i] = 0;
  __syncthreads();
  AnswerTerms terms;
  double prompts = 0;
  for (std::int64_t i = threadIdx.x; i < args.pair_count; i += kThreads) {
    add_answer_pair(args, i, terms);
    if (args.prompts != nullptr) prompts -= args.prompts[args.pairs[2 * i]];
  }
  AnswerTerms total;
  total.loss = block_sum(terms.loss, scratch);
  for (int i = 0; i < kMostAnswerMetrics; ++i) total.metrics[i] = block_sum(terms.metrics[i], scratch);
  prompts = block_sum(prompts, scratch);
  if (threadIdx.x != 0) return;
  add_prompt_terms(args, prompts, total);
  value[0] = static_cast<float>(total.loss * static_cast<double>(scale));
  for (int i = 0; i < metric_count; ++i) metrics[i] = static_cast<float>(total.metrics[i] * static_cast<double>(scale));
}

__global__ __launch_bounds__(kThreads) void answer_factors_kernel(const std::int32_t* owners, const double* derivatives,
                                                                  const std::int32_t* prompts, double prompt_share,
                                                                  float scale, float* factors, std::int64_t rows) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= rows) return;
  double derivative = owners[row] >= 0 ? 0.0 - derivatives[owners[row]] : 0.0;
  if (prompts != nullptr && prompts[row] >= 0) derivative += prompt_share;
  factors[row] = static_cast<float>(derivative * static_cast<double>(scale));
}

__global__ __launch_bounds__(kThreads) void answer_divergence_kernel(const double* logps, const double* reference,
                                                                     const std::int32_t* pairs, std::int64_t count,
                                                                     double* sums) {
  __shared__ double scratch[33];
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) {
    const std::int32_t other = pairs[2 * i] + 1;
    sum += logps[other] - (reference != nullptr ? reference[other] : 0.0);
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) {
    sums[0] = sum;
    sums[1] = static_cast<double>(count);
  }
}

void answer_sums(const AnswerSumsArgs& args) {
  const OpLaunch launch("answer_sums", {&args.rows.ranges, &args.rows.owners, &args.losses, &args.logps});
  launch(answer_sums_kernel, dim3(static_cast<unsigned>(args.logps.numel())), dim3(kThreads), 0,
         args.rows.ranges.data<std::int32_t>(), args.rows.owners.data<std::int32_t>(), args.losses.data<float>(),
         args.logps.data<double>());
}

void answer_loss(const AnswerLossArgs& args) {
  const OpLaunch launch("answer_loss", {&args.logps, &args.tokens, &args.pairs, &args.value, &args.derivatives});
  launch(answer_loss_kernel, dim3(1), dim3(kThreads), 0, answer_loss_pointers(args), args.derivatives.numel(),
         args.scale, args.value.data<float>(), args.metrics.defined() ? args.metrics.data<float>() : nullptr,
         args.metrics.defined() ? static_cast<int>(args.metrics.numel()) : 0);
}

void answer_factors(const AnswerFactorsArgs& args) {
  const OpLaunch launch("answer_factors", {&args.owners, &args.derivatives, &args.factors});
  const std::int64_t rows = args.factors.numel();
  launch(answer_factors_kernel, dim3(static_cast<unsigned>((rows + kThreads - 1) / kThreads)), dim3(kThreads), 0,
         args.owners.data<std::int32_t>(), args.derivatives.data<double>(),
         args.prompts.defined() ? args.prompts.data<std::int32_t>() : nullptr, args.prompt_share, args.scale,
         args.factors.data<float>(), rows);
}

void answer_divergence(const AnswerDivergenceArgs& args) {
  const OpLaunch launch("answer_divergence", {&args.logps, &args.pairs, &args.sums});
  launch(answer_divergence_kernel, dim3(1), dim3(kThreads), 0, args.logps.data<double>(),
         args.reference.defined() ? args.reference.data<double>() : nullptr, args.pairs.data<std::int32_t>(),
         args.pairs.size(0), args.sums.data<double>());
}

QUENCH_CUDA_KERNEL(answer_sums_slot, answer_sums);
QUENCH_CUDA_KERNEL(answer_loss_slot, answer_loss);
QUENCH_CUDA_KERNEL(answer_factors_slot, answer_factors);
QUENCH_CUDA_KERNEL(answer_divergence_slot, answer_divergence);

}  // namespace
}  // namespace quench::cuda
