// Fused cross-entropy. A row of f32 logits (513 KB for 128,256 tokens) exceeds an SM, rows in flight exceed L2: a
// cluster of up to eight CTAs shares a row, read once into up to ten 16-byte vectors per thread, reduced through
// distributed shared memory; two CTAs per SM overlap reads and writes. Longer or unaligned rows are read twice; long
// bf16 rows: cross_entropy_stream.cu.

#include "core/ops/loss/cross_entropy.h"

#include <cooperative_groups.h>

#include "core/cuda/common/kernel_choice.h"
#include "core/cuda/vocabulary/cross_entropy.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kMaxCluster = 8;    // portable
constexpr int kFewVectors = 8;    // 16-byte, per thread
constexpr int kMostVectors = 10;  // for the longest rows

// Thread's vectors of a row, begin + k * step, in registers.
template <class T, int kVectors>
struct RowVectors {
  static constexpr int kWidth = kVectorWidth<T>;
  int begin, step, end;
  Packed<T> value[kVectors];  // logits; f32: their exponentials after exponential_sum()

  [[nodiscard]] __device__ bool exists(int k) const { return begin + k * step < end; }
  __device__ __forceinline__ void load(const T* logits) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (exists(k)) value[k] = load_packed_once(logits, begin + k * step);
  }
  [[nodiscard]] __device__ __forceinline__ float largest() const {
    float result = -INFINITY;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (!exists(k)) continue;
      const auto x = unpack(value[k]);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) result = fmaxf(result, x[j]);
    }
    return result;
  }
  __device__ __forceinline__ float exponential_sum(float shift) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (!exists(k)) continue;
      auto terms = unpack(value[k]);
      float part = 0;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        terms[j] = exp_term<T>(terms[j] - shift);
        part += terms[j];
      }
      sum += part;
      if constexpr (sizeof(T) == 4) value[k] = pack<T>(terms);
    }
    return sum;
  }
  // factor: of the exponentials.
  template <class G>
  __device__ __forceinline__ void store_softmax(G* gradients, float row_largest, float factor, float scale,
                                                std::int32_t label, float encode) const {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (!exists(k)) continue;
      auto terms = unpack(value[k]);
      if constexpr (sizeof(T) == 2) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) terms[j] = exp_term<T>(terms[j] - row_largest);
      }
      store_gradients(gradients, begin + k * step, terms, factor, scale, label, encode);
    }
  }
};

// 6 bytes per element for f32 and bf16, 4 for bf16. One cluster per row; at most kThreads * kVectors vectors per CTA.
template <class T, class G, int kVectors>
__global__ __launch_bounds__(kThreads, 2) void cluster_loss_kernel(LossRows<T, G> args) {
#ifdef QUENCH_HAS_CLUSTERS
  constexpr int kWidth = kVectorWidth<T>;
  namespace cg = cooperative_groups;
  const cg::cluster_group cluster = cg::this_cluster();
  const unsigned blocks = cluster.num_blocks(), rank = cluster.block_rank();
  __shared__ float scratch[33];
  __shared__ float2 share;  // CTA's maximum logit and sum of exponentials
  const float encode = args.encode_factor();

  const std::int64_t row = blockIdx.x / blocks;
  const T* logits = args.logits + row * args.vocab;
  G* gradients = args.dlogits != nullptr ? args.dlogits + row * args.vocab : nullptr;
  RowVectors<T, kVectors> vectors{.begin = static_cast<int>(rank * kThreads + threadIdx.x),
                                  .step = static_cast<int>(blocks * kThreads),
                                  .end = static_cast<int>(args.vocab / kWidth)};
  const bool first = rank == 0 && threadIdx.x == 0;
  const std::int32_t label = args.labels[row];
  if (label == kIgnoreLabel) {  // uniform over the cluster
    if (first) args.losses[row] = 0.0f;
    if (gradients != nullptr)
      for (int v = vectors.begin; v < vectors.end; v += vectors.step)
        store_gradient(gradients, v, Vector<float, kWidth>{}, encode);
    return;
  }

  vectors.load(logits);
  const bool label_exists = label >= 0 && label < args.vocab;
  const float label_logit = first && label_exists ? to_float(logits[label]) : 0.0f;
  const float largest = block_reduce<kThreads>(vectors.largest(), -INFINITY, scratch, LargestNumber());
  const float sum = block_reduce<kThreads>(vectors.exponential_sum(shift_of(largest)), 0.0f, scratch, Sum());

  if (threadIdx.x == 0) share = make_float2(largest, sum);
  cluster.sync();
  const unsigned lane = threadIdx.x % 32;
  const float2 other = lane < blocks ? *cluster.map_shared_rank(&share, lane) : make_float2(-INFINITY, 0.0f);
  cluster.barrier_arrive();  // CTAs stay resident until all have read
  const float row_largest = warp_reduce(other.x, LargestNumber());
  float row_sum = warp_reduce(other.y * expf(other.x - row_largest), Sum());
  if (!label_exists) row_sum = __int_as_float(0x7FC00000);  // invalid label: NaN
  if (first) args.losses[row] = logf(row_sum) + (row_largest - label_logit);

  if (gradients != nullptr) {
    const float factor = args.scale / row_sum;
    vectors.store_softmax(gradients, row_largest, sizeof(T) == 4 ? expf(largest - row_largest) * factor : factor,
                          args.scale, label, encode);
  }
  cluster.barrier_wait();
#endif
}

// Any length and alignment, one CTA per row, read twice.
template <class T, class G, bool kWide>
__global__ __launch_bounds__(kThreads) void two_pass_loss_kernel(LossRows<T, G> args) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  constexpr int kUnroll = kWide ? 4 : 8;
  __shared__ float scratch[33];
  const std::int64_t end = args.vocab / kWidth;
  const float encode = args.encode_factor();
  for (std::int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* logits = args.logits + row * args.vocab;
    G* gradients = args.dlogits != nullptr ? args.dlogits + row * args.vocab : nullptr;
    const std::int32_t label = args.labels[row];
    if (label == kIgnoreLabel) {
      if (threadIdx.x == 0) args.losses[row] = 0.0f;
      if (gradients != nullptr)
        for (std::int64_t v = threadIdx.x; v < end; v += kThreads)
          store_gradient(gradients, v, Vector<float, kWidth>{}, encode);
      continue;
    }
    const bool label_exists = label >= 0 && label < args.vocab;
    const float label_logit = threadIdx.x == 0 && label_exists ? to_float(logits[label]) : 0.0f;

    float largest = -INFINITY, sum = 0;
    for (std::int64_t v = threadIdx.x; v < end; v += kUnroll * kThreads) {
      Vector<float, kWidth> x[kUnroll];
      float step_largest = largest;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (v + u * kThreads >= end) continue;
        x[u] = unpack(load_packed<T, kWidth>(logits, v + u * kThreads));
#pragma unroll
        for (int j = 0; j < kWidth; ++j) step_largest = fmaxf(step_largest, x[u][j]);
      }
      const float shift = shift_of(step_largest);
      if (step_largest > largest) sum *= expf(largest - shift);
      largest = step_largest;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (v + u * kThreads >= end) continue;
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sum += exp_term<T>(x[u][j] - shift);
      }
    }
    const float row_largest = block_reduce<kThreads>(largest, -INFINITY, scratch, LargestNumber());
    float row_sum = block_reduce<kThreads>(sum * expf(largest - row_largest), 0.0f, scratch, Sum());
    if (!label_exists) row_sum = __int_as_float(0x7FC00000);  // invalid label: NaN
    if (threadIdx.x == 0) args.losses[row] = logf(row_sum) + (row_largest - label_logit);
    if (gradients == nullptr) continue;
    const float factor = args.scale / row_sum;
#pragma unroll 4
    for (std::int64_t v = threadIdx.x; v < end; v += kThreads) {
      auto terms = unpack(load_packed<T, kWidth>(logits, v));
#pragma unroll
      for (int j = 0; j < kWidth; ++j) terms[j] = exp_term<T>(terms[j] - row_largest);
      store_gradients(gradients, v, terms, factor, args.scale, label, encode);
    }
  }
}

template <class T, class G>
void launch_loss(const OpLaunch& launch, const LossRows<T, G>& args) {
  const bool wide =
      rows_are_wide<T>(args.logits, args.vocab, args.vocab) && reinterpret_cast<std::uintptr_t>(args.dlogits) % 16 == 0;
  const bool clusters = code_capability(launch.device()) >= kClusterCapability &&
                        kernel_family_enabled(KernelFamily::cluster_cross_entropy);
  const auto note = [&] {
    note_kernel_family(KernelFamily::cluster_cross_entropy, args.losses,
                       static_cast<std::size_t>(args.rows) * sizeof(float), current_stream(launch.device()));
  };
  const std::int64_t pieces = args.vocab / kVectorWidth<T>;
  if constexpr (std::is_same_v<T, bfloat16>)
    if (clusters && wide && pieces > std::int64_t{kThreads} * kFewVectors && stream_loss(launch, args)) return note();
  unsigned cluster = 1;
  while (cluster < kMaxCluster && pieces > std::int64_t{cluster} * kThreads * kFewVectors) cluster *= 2;
  if (!wide || !clusters || pieces > std::int64_t{kMaxCluster} * kThreads * kMostVectors ||
      args.rows * cluster > 0x7FFFFFFF) {
    launch(wide ? two_pass_loss_kernel<T, G, true> : two_pass_loss_kernel<T, G, false>,
           strided_grid(launch.device(), args.rows, 1, 4, 4), kThreads, 0, args);
    return;
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(args.rows) * cluster;
  config.blockDim = kThreads;
  config.stream = launch.stream();
  config.attrs = &attribute;
  config.numAttrs = 1;
  const bool few = pieces <= std::int64_t{cluster} * kThreads * kFewVectors;
  launch.check(cudaLaunchKernelEx(
      &config, few ? cluster_loss_kernel<T, G, kFewVectors> : cluster_loss_kernel<T, G, kMostVectors>, args));
  note();
}

template <class T, class G>
LossRows<T, G> rows_of(const CrossEntropyArgs& args, G* gradients) {
  return {.logits = args.logits.data<T>(),
          .labels = args.labels.data<std::int32_t>(),
          .losses = args.losses.data<float>(),
          .dlogits = gradients,
          .rows = args.logits.size(0),
          .vocab = args.logits.size(1),
          .scale = args.grad_scale};
}

void cross_entropy(const CrossEntropyArgs& args) {
  const OpLaunch launch("cross_entropy", {&args.logits, &args.labels, &args.losses, &args.dlogits});
  const DType gradient = args.dlogits.defined() ? args.dlogits.dtype() : args.logits.dtype();
  dispatch<float, bfloat16>(args.logits.dtype(), "cross_entropy", [&]<class T>() {
    if (args.codes.defined()) {
      auto rows = rows_of<T>(args, static_cast<GradientCode*>(args.codes.payload().raw_data()));
      rows.encode = args.codes.scales().data<float>();
      return launch_loss(launch, rows);
    }
    dispatch<float, bfloat16>(gradient, "cross_entropy", [&]<class G>() {
      launch_loss(launch, rows_of<T>(args, args.dlogits.defined() ? args.dlogits.data<G>() : nullptr));
    });
  });
}

QUENCH_CUDA_KERNEL(cross_entropy_slot, cross_entropy);

}  // namespace
}  // namespace quench::cuda
