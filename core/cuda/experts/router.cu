// One warp per token, scores in shared memory.

#include "core/cuda/common/launch.h"
#include "core/cuda/common/reduce.cuh"
#include "core/ops/experts/router.h"

namespace quench::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kMaxExperts = 2048;
constexpr int kLossBlocks = 128;
constexpr unsigned kAll = 0xFFFFFFFFu;

struct Rule {
  bool sigmoid, normalize, by_logits;
  float factor;
  int groups, groups_per_token;
};

Rule rule_of(const RouterRule& rule, bool has_bias) {
  return {rule.scoring == RouterScoring::sigmoid, rule.normalize,
          chooses_by_logits(rule, has_bias),      rule.factor,
          static_cast<int>(rule.groups),          static_cast<int>(rule.groups_per_token)};
}

struct Best {
  float value;
  int index;  // -1: none
};

// argmax of n shared-memory values, first among equals, NaN as -inf; in all lanes.
__device__ Best best_of(const float* values, int n, int lane) {
  Best best{-INFINITY, -1};
  for (int i = lane; i < n; i += 32)
    if (values[i] > best.value) best = {values[i], i};
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const float value = __shfl_xor_sync(kAll, best.value, offset);
    const int index = __shfl_xor_sync(kAll, best.index, offset);
    if (index >= 0 && (value > best.value || best.index < 0 || (value == best.value && index < best.index)))
      best = {value, index};
  }
  return best;
}

// Row softmax into p; returns the log-sum-exp.
__device__ float softmax(const float* logits, int n, int lane, float* p) {
  float largest = -INFINITY;
  for (int e = lane; e < n; e += 32) largest = Max()(largest, logits[e]);
  largest = warp_reduce(largest, Max());
  float sum = 0;
  for (int e = lane; e < n; e += 32) sum += p[e] = expf(logits[e] - largest);
  sum = warp_reduce(sum, Sum());
  for (int e = lane; e < n; e += 32) p[e] = p[e] / sum;
  __syncwarp();
  return largest + logf(sum);
}

__device__ void scores_of(const float* logits, int n, int lane, bool sigmoid, float* scores) {
  if (!sigmoid) {
    (void)softmax(logits, n, lane, scores);
    return;
  }
  for (int e = lane; e < n; e += 32) scores[e] = 1.0f / (1.0f + expf(-logits[e]));
  __syncwarp();
}

// Experts outside the best groups become -inf.
__device__ void keep_best_groups(const Rule& rule, int experts, int lane, float* choice, float* group_scores) {
  const int size = experts / rule.groups;
  for (int g = lane; g < rule.groups; g += 32) {
    float first = -INFINITY, second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      if (choice[e] > first) {
        second = first;
        first = choice[e];
      } else if (choice[e] > second) {
        second = choice[e];
      }
    }
    group_scores[g] = size > 1 ? first + second : first;
  }
  __syncwarp();
  for (int taken = 0; taken < rule.groups_per_token; ++taken) {
    const Best best = best_of(group_scores, rule.groups, lane);
    if (best.index < 0) break;
    if (lane == 0) group_scores[best.index] = -INFINITY;
    __syncwarp();
    for (int e = best.index * size + lane; e < (best.index + 1) * size; e += 32) choice[experts + e] = 1.0f;
    __syncwarp();
  }
  for (int e = lane; e < experts; e += 32)
    if (choice[experts + e] == 0.0f) choice[e] = -INFINITY;
  __syncwarp();
}

__global__ __launch_bounds__(kThreads) void router_kernel(const float* logits, const float* bias,
                                                          std::int32_t* experts_out, float* weights_out,
                                                          std::int64_t tokens, int experts, int chosen, Rule rule) {
  extern __shared__ float memory[];  // per warp: scores, choice, marks, group scores
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t token = std::int64_t{blockIdx.x} * kWarps + warp;
  if (token >= tokens) return;
  float* scores = memory + warp * (3 * experts + rule.groups);
  float* choice = scores + experts;
  float* marks = choice + experts;
  scores_of(logits + token * experts, experts, lane, rule.sigmoid, scores);
  for (int e = lane; e < experts; e += 32) {
    choice[e] = rule.by_logits ? logits[token * experts + e] : scores[e] + (bias != nullptr ? bias[e] : 0.0f);
    marks[e] = 0.0f;
  }
  __syncwarp();
  if (rule.groups > 1) {
    keep_best_groups(rule, experts, lane, choice, marks + experts);
    for (int e = lane; e < experts; e += 32) marks[e] = 0.0f;
    __syncwarp();
  }
  float sum = 0;
  for (int j = 0; j < chosen; ++j) {
    int best = best_of(choice, experts, lane).index;
    // Only NaN left: first free expert.
    if (best < 0)
      for (best = 0; marks[best] != 0.0f;) ++best;
    __syncwarp();
    if (lane == 0) {
      marks[best] = 1.0f;
      choice[best] = -INFINITY;
      experts_out[token * chosen + j] = best;
    }
    sum += scores[best];
    __syncwarp();
  }
  const float factor = rule.normalize ? rule.factor / (sum + kRouterEpsilon) : rule.factor;
  for (int j = lane; j < chosen; j += 32)
    weights_out[token * chosen + j] = scores[experts_out[token * chosen + j]] * factor;
}

__global__ __launch_bounds__(kThreads) void router_backward_kernel(const float* dweights, const float* logits,
                                                                   const std::int32_t* ids, const float* counts,
                                                                   float* dlogits, std::int64_t tokens, int experts,
                                                                   int chosen, Rule rule, float balance, float z) {
  extern __shared__ float memory[];  // per warp: scores, their gradients, probabilities
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t token = std::int64_t{blockIdx.x} * kWarps + warp;
  if (token >= tokens) return;
  float* scores = memory + warp * 3 * experts;
  float* dscores = scores + experts;
  float* p = dscores + experts;
  const float* in = logits + token * experts;
  const bool terms = balance != 0.0f || z != 0.0f;
  scores_of(in, experts, lane, rule.sigmoid, scores);
  float lse = 0;
  if (terms || !rule.sigmoid) lse = softmax(in, experts, lane, p);
  for (int e = lane; e < experts; e += 32) dscores[e] = 0.0f;
  __syncwarp();
  float sum = kRouterEpsilon, product = 0;
  for (int j = 0; j < chosen; ++j) {
    const float score = scores[ids[token * chosen + j]];
    sum += score;
    product += dweights[token * chosen + j] * score;
  }
  for (int j = lane; j < chosen; j += 32) {
    const float d = dweights[token * chosen + j];
    dscores[ids[token * chosen + j]] = rule.factor * (rule.normalize ? (d - product / sum) / sum : d);
  }
  __syncwarp();
  // Gradient of probabilities: softmax scores and balance loss.
  const auto dp = [&](int e) {
    return (rule.sigmoid ? 0.0f : dscores[e]) + (counts != nullptr ? balance * counts[e] : 0.0f);
  };
  float mean = 0;
  if (terms || !rule.sigmoid)
    for (int e = lane; e < experts; e += 32) mean += p[e] * dp(e);
  mean = warp_reduce(mean, Sum());
  for (int e = lane; e < experts; e += 32) {
    float d = rule.sigmoid ? dscores[e] * scores[e] * (1.0f - scores[e]) : 0.0f;
    if (terms || !rule.sigmoid) d += p[e] * (dp(e) - mean + 2.0f * z * lse);
    dlogits[token * experts + e] = d;
  }
}

// partial[block][e]: sum of p_e over the CTA's tokens; last column: z-loss.
__global__ __launch_bounds__(kThreads) void router_loss_kernel(const float* logits, std::int64_t tokens, int experts,
                                                               float* partial) {
  extern __shared__ float memory[];  // per warp: probabilities and their sums
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float* p = memory + warp * (2 * experts + 1);
  float* sums = p + experts;
  for (int e = lane; e <= experts; e += 32) sums[e] = 0.0f;
  __syncwarp();
  const std::int64_t each = (tokens + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * each;
  for (std::int64_t token = begin + warp; token < min(begin + each, tokens); token += kWarps) {
    const float lse = softmax(logits + token * experts, experts, lane, p);
    for (int e = lane; e < experts; e += 32) sums[e] += p[e];
    if (lane == 0) sums[experts] += lse * lse;
    __syncwarp();
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e <= experts; e += kThreads) {
    float total = 0;
    for (int w = 0; w < kWarps; ++w) total += memory[w * (2 * experts + 1) + experts + e];
    partial[std::int64_t{blockIdx.x} * (experts + 1) + e] = total;
  }
}

__global__ __launch_bounds__(kThreads) void finish_router_loss_kernel(const float* partial, int blocks, int experts,
                                                                      const float* counts, double tokens,
                                                                      float* losses) {
  __shared__ double scratch[33];
  double balance = 0;
  for (int e = static_cast<int>(threadIdx.x); e <= experts; e += kThreads) {
    double sum = 0;
    for (int b = 0; b < blocks; ++b) sum += static_cast<double>(partial[std::int64_t{b} * (experts + 1) + e]);
    if (e < experts)
      balance += static_cast<double>(counts[e]) / tokens * sum / tokens;
    else
      losses[1] = static_cast<float>(sum / tokens);
  }
  balance = block_reduce<kThreads>(balance, 0.0, scratch, Sum());
  if (threadIdx.x == 0) losses[0] = static_cast<float>(balance * experts);
}

void check_experts(std::int64_t experts) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, experts <= kMaxExperts, "router: {} experts, at most {} on a GPU", experts,
                  kMaxExperts);
}

unsigned blocks_of(std::int64_t tokens) {
  return static_cast<unsigned>((tokens + kWarps - 1) / kWarps);
}

std::size_t shared_floats(std::int64_t of_a_warp) {
  return static_cast<std::size_t>(kWarps * of_a_warp) * sizeof(float);
}

void router_cuda(const RouterArgs& args) {
  const OpLaunch launch("router", {&args.logits, &args.bias, &args.experts, &args.weights});
  const std::int64_t tokens = args.logits.size(0), experts = args.logits.size(1);
  check_experts(experts);
  launch(router_kernel, blocks_of(tokens), kThreads, shared_floats(3 * experts + args.rule.groups),
         args.logits.data<float>(), args.bias.defined() ? args.bias.data<float>() : nullptr,
         args.experts.data<std::int32_t>(), args.weights.data<float>(), tokens, static_cast<int>(experts),
         static_cast<int>(args.experts.size(1)), rule_of(args.rule, args.bias.defined()));
}

void router_backward_cuda(const RouterBackwardArgs& args) {
  const OpLaunch launch("router_backward", {&args.dweights, &args.logits, &args.experts, &args.counts, &args.dlogits});
  const std::int64_t tokens = args.logits.size(0), experts = args.logits.size(1);
  check_experts(experts);
  const auto n = static_cast<float>(tokens);
  launch(router_backward_kernel, blocks_of(tokens), kThreads, shared_floats(3 * experts), args.dweights.data<float>(),
         args.logits.data<float>(), args.experts.data<std::int32_t>(),
         args.terms.balance != 0.0f ? args.counts.data<float>() : nullptr, args.dlogits.data<float>(), tokens,
         static_cast<int>(experts), static_cast<int>(args.experts.size(1)), rule_of(args.rule, false),
         args.terms.balance * static_cast<float>(experts) / n / n, args.terms.z / n);
}

void router_loss_cuda(const RouterLossArgs& args) {
  const OpLaunch launch("router_loss", {&args.logits, &args.counts, &args.losses});
  const std::int64_t tokens = args.logits.size(0), experts = args.logits.size(1);
  check_experts(experts);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor partial = Tensor::empty({kLossBlocks, experts + 1}, DType::f32, launch.device());
  launch(router_loss_kernel, kLossBlocks, kThreads, shared_floats(2 * experts + 1), args.logits.data<float>(), tokens,
         static_cast<int>(experts), partial.data<float>());
  launch(finish_router_loss_kernel, 1, kThreads, 0, partial.data<float>(), kLossBlocks, static_cast<int>(experts),
         args.counts.data<float>(), static_cast<double>(tokens), args.losses.data<float>());
}

QUENCH_CUDA_KERNEL(router_slot, router_cuda);
QUENCH_CUDA_KERNEL(router_backward_slot, router_backward_cuda);
QUENCH_CUDA_KERNEL(router_loss_slot, router_loss_cuda);

}  // namespace
}  // namespace quench::cuda
