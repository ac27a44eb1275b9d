// Cross-entropy for long bf16 rows. Persistent clusters, one row at a time; cp.async prefetches the next row, so HBM
// stays busy during reductions; two CTAs per SM. A thread reads only its own copies. One cluster barrier per row: each
// warp sums against its own maximum and sends both to every CTA.

#include <cooperative_groups.h>
#include <cuda_pipeline.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "core/cuda/vocabulary/cross_entropy.cuh"
#include "core/ops/loss/cross_entropy.h"

namespace quench::cuda {
namespace {

using T = bfloat16;
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kStages = 2;           // rows
constexpr unsigned kMaxCluster = 8;  // portable
constexpr int kFewestVectors = 4;    // 16-byte, per thread
constexpr int kMostVectors = 6;      // two CTAs per SM
constexpr std::size_t kDevices = 16;

// Received by a CTA for one row.
struct ExchangeBox {
  float2 of_warps[kMaxCluster * kWarps];
  float2 of_label;  // label's logit; first CTA
  std::uint64_t barrier;
};

#ifdef QUENCH_HAS_CLUSTERS
// Ignores NaN.
__device__ inline std::uint32_t larger_numbers(std::uint32_t a, std::uint32_t b) {
  std::uint32_t result;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

// Cluster reduction by mbarrier: every warp sends 8 bytes to every CTA, the label's logit to the first. Two boxes
// suffice: a sender has received the previous row, so every warp has read the one before.
class Exchange {
 public:
  // Cluster collective; cluster sync before the first send.
  __device__ Exchange(ExchangeBox (&boxes)[2], unsigned blocks, unsigned rank)
      : boxes_(boxes), blocks_(blocks), rank_(rank), bytes_((blocks * kWarps + (rank == 0 ? 1 : 0)) * sizeof(float2)) {
    if (threadIdx.x != 0) return;
    for (ExchangeBox& box : boxes_) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&box.barrier)) : "memory");
      expect(box);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }

  // Warp collective.
  __device__ void send(float largest, float sum) {
    const unsigned lane = threadIdx.x % 32;
    ExchangeBox& box = boxes_[rows_ % 2];
    if (lane < blocks_) push(box, box.of_warps[rank_ * kWarps + threadIdx.x / 32], make_float2(largest, sum), lane);
  }
  // One thread of the cluster.
  __device__ void send_label(float logit) {
    ExchangeBox& box = boxes_[rows_ % 2];
    push(box, box.of_label, make_float2(logit, 0.0f), 0);
  }
  // All messages of a row.
  __device__ const ExchangeBox& receive() {
    ExchangeBox& box = boxes_[rows_ % 2];
    std::uint32_t done = 0;
    while (done == 0)
      asm volatile(
          "{\n"
          ".reg .pred done;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
          "selp.u32 %0, 1, 0, done;\n"
          "}"
          : "=r"(done)
          : "r"(address(&box.barrier)), "r"(rows_ / 2 % 2)
          : "memory");
    if (threadIdx.x == 0) expect(box);
    ++rows_;
    return box;
  }

 private:
  __device__ static std::uint32_t address(const void* shared) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  }
  __device__ void expect(ExchangeBox& box) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&box.barrier)), "r"(bytes_)
                 : "memory");
  }
  // st.async to the same offset in CTA `rank`.
  __device__ static void push(ExchangeBox& box, float2& place, float2 value, unsigned rank) {
    const std::uint64_t bits = std::uint64_t{__float_as_uint(value.x)} | std::uint64_t{__float_as_uint(value.y)} << 32;
    asm volatile(
        "{\n"
        ".reg .b32 place, barrier;\n"
        "mapa.shared::cluster.u32 place, %0, %2;\n"
        "mapa.shared::cluster.u32 barrier, %1, %2;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [place], %3, [barrier];\n"
        "}" ::"r"(address(&place)),
        "r"(address(&box.barrier)), "r"(rank), "l"(bits)
        : "memory");
  }

  ExchangeBox (&boxes_)[2];
  unsigned blocks_, rank_;
  std::uint32_t bytes_;     // per row
  std::uint32_t rows_ = 0;  // completed
};

// Thread's vectors of a row: begin + k * step, of which only the last may be absent. Rows ahead by cp.async, each
// thread its own elements: [kStages][kVectors][kThreads].
template <class G, int kVectors>
struct RowStream {
  const LossRows<T, G>& args;
  Packed<T>* memory;
  int begin, step;
  bool last_exists;

  __device__ RowStream(const LossRows<T, G>& rows, Packed<T>* shared, int blocks, int rank)
      : args(rows),
        memory(shared + threadIdx.x),
        begin(rank * kThreads + static_cast<int>(threadIdx.x)),
        step(blocks * kThreads),
        last_exists(begin + (kVectors - 1) * step < static_cast<int>(args.vocab / kVectorWidth<T>)) {}
  [[nodiscard]] __device__ bool exists(int k) const { return k < kVectors - 1 || last_exists; }
  [[nodiscard]] __device__ Packed<T>* slots(int stage) const { return memory + stage * kVectors * kThreads; }
  [[nodiscard]] __device__ std::int32_t label(std::int64_t row) const {
    return row < args.rows ? args.labels[row] : kIgnoreLabel;
  }
  // Empty cp.async groups past the last row and for ignored labels keep counts equal.
  __device__ __forceinline__ void fetch(std::int64_t row, std::int32_t label, int stage) const {
    if (row < args.rows && label != kIgnoreLabel) {
      const auto* logits = reinterpret_cast<const Packed<T>*>(args.logits + row * args.vocab) + begin;
#pragma unroll
      for (int k = 0; k < kVectors; ++k)
        if (exists(k)) __pipeline_memcpy_async(slots(stage) + k * kThreads, logits + k * step, sizeof(Packed<T>));
    }
    __pipeline_commit();
  }
  // Maximum over the warp.
  __device__ __forceinline__ float warp_largest(const Packed<T>* logits) const {
    std::uint32_t most = 0xFF80FF80;  // -inf, -inf
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (!exists(k)) continue;
      const Packed<T> piece = logits[k * kThreads];
#pragma unroll
      for (const std::uint32_t word : piece.words) most = larger_numbers(most, word);
    }
    const float2 two = unpack_pair<T>(most);
    return warp_reduce(fmaxf(two.x, two.y), LargestNumber());
  }
  // Sum of exponentials over the warp.
  __device__ __forceinline__ float warp_sum(const Packed<T>* logits, float shift) const {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (!exists(k)) continue;
      const auto x = unpack(logits[k * kThreads]);
      float part = 0;
#pragma unroll
      for (int j = 0; j < kVectorWidth<T>; ++j) part += exp_term<T>(x[j] - shift);
      sum += part;
    }
    return warp_reduce(sum, Sum());
  }
  __device__ __forceinline__ void store_zeros(G* gradients, float encode) const {
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (exists(k)) store_gradient(gradients, begin + k * step, Vector<float, kVectorWidth<T>>{}, encode);
  }
  __device__ __forceinline__ void store_softmax(G* gradients, const Packed<T>* logits, float largest, float sum,
                                                std::int32_t label, float encode) const {
    const float factor = args.scale / sum;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (!exists(k)) continue;
      auto terms = unpack(logits[k * kThreads]);
#pragma unroll
      for (int j = 0; j < kVectorWidth<T>; ++j) terms[j] = exp_term<T>(terms[j] - largest);
      store_gradients(gradients, begin + k * step, terms, factor, args.scale, label, encode);
    }
  }
};

// Maximum and sum of exponentials of the row, in every warp, from those of the cluster's warps.
__device__ __forceinline__ float2 row_softmax(const ExchangeBox& box, int blocks) {
  constexpr int kShares = static_cast<int>(kMaxCluster) * kWarps / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float2 shares[kShares];
  float largest = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < kShares; ++i) {
    shares[i] = 32 * i < blocks * kWarps ? box.of_warps[32 * i + lane] : make_float2(-INFINITY, 0.0f);
    largest = fmaxf(largest, shares[i].x);
  }
  largest = warp_reduce(largest, LargestNumber());
#pragma unroll
  for (int i = 0; i < kShares; ++i)
    if (32 * i < blocks * kWarps) sum += shares[i].y * expf(shares[i].x - largest);
  return make_float2(largest, warp_reduce(sum, Sum()));
}
#endif

// 6 or 4 bytes per element. Rows strided by the cluster count.
template <class G, int kVectors>
__global__ __launch_bounds__(kThreads, 2) void streamed_loss_kernel(const __grid_constant__ LossRows<T, G> args) {
#ifdef QUENCH_HAS_CLUSTERS
  constexpr int kWidth = kVectorWidth<T>;
  namespace cg = cooperative_groups;
  const cg::cluster_group cluster = cg::this_cluster();
  extern __shared__ Packed<T> memory[];
  __shared__ ExchangeBox boxes[2];
  const int blocks = static_cast<int>(cluster.num_blocks()), rank = static_cast<int>(cluster.block_rank());
  const RowStream<G, kVectors> stream(args, memory, blocks, rank);
  const bool first = rank == 0 && threadIdx.x == 0;
  const std::int64_t clusters = gridDim.x / static_cast<unsigned>(blocks);
  const float encode = args.encode_factor();

  std::int64_t row = blockIdx.x / static_cast<unsigned>(blocks);
  std::int32_t label = stream.label(row), next_label = stream.label(row + clusters);
  int stage = 0;
  stream.fetch(row, label, stage);
  Exchange exchange(boxes, static_cast<unsigned>(blocks), static_cast<unsigned>(rank));
  cluster.sync();  // initialized
  for (; row < args.rows; row += clusters, stage ^= 1) {
    const std::int32_t own_label = label;
    stream.fetch(row + clusters, next_label, stage ^ 1);  // stage consumed by this thread
    label = next_label;
    next_label = stream.label(row + 2 * clusters);
    G* gradients = args.dlogits != nullptr ? args.dlogits + row * args.vocab : nullptr;
    if (own_label == kIgnoreLabel) {  // uniform over the cluster
      if (first) args.losses[row] = 0.0f;
      if (gradients != nullptr) stream.store_zeros(gradients, encode);
      continue;
    }
    const bool label_exists = own_label >= 0 && own_label < args.vocab;
    __pipeline_wait_prior(kStages - 1);
    const Packed<T>* const logits = stream.slots(stage);
    // From shared memory: in-place gradients may overwrite logits after the exchange.
    const int label_piece = label_exists ? own_label / kWidth : 0;
    if (label_piece % stream.step == stream.begin)
      exchange.send_label(to_float(
          reinterpret_cast<const T*>(logits + label_piece / stream.step * kThreads)[own_label & (kWidth - 1)]));
    const float largest = stream.warp_largest(logits);
    exchange.send(largest, stream.warp_sum(logits, shift_of(largest)));
    const ExchangeBox& box = exchange.receive();

    float2 softmax = row_softmax(box, blocks);
    if (!label_exists) softmax.y = __int_as_float(0x7FC00000);  // invalid label: NaN
    if (first) args.losses[row] = logf(softmax.y) + (softmax.x - box.of_label.x);
    if (gradients != nullptr) stream.store_softmax(gradients, logits, softmax.x, softmax.y, own_label, encode);
  }
#endif
}

template <class G, int kVectors>
bool launch_streamed(const OpLaunch& launch, const LossRows<T, G>& args, unsigned cluster) {
  const auto kernel = streamed_loss_kernel<G, kVectors>;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = cluster;
  config.blockDim = kThreads;
  config.dynamicSmemBytes = sizeof(Packed<T>) * kStages * kVectors * kThreads;
  config.stream = launch.stream();
  config.attrs = &attribute;
  config.numAttrs = 1;
  // Resident clusters plus one; 0: unknown.
  static std::array<std::array<std::atomic<int>, kMaxCluster + 1>, kDevices> known{};
  std::atomic<int>& held = known.at(static_cast<std::size_t>(launch.device().index)).at(cluster);
  if (held.load(std::memory_order_relaxed) == 0) {
    int clusters = 0;
    if (static_cast<int>(config.dynamicSmemBytes + 2 * sizeof(ExchangeBox)) <= max_shared_bytes(launch.device())) {
      launch.check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(config.dynamicSmemBytes)));
      launch.check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
    }
    held.store(clusters + 1, std::memory_order_relaxed);
  }
  const std::int64_t clusters = std::min<std::int64_t>(args.rows, held.load(std::memory_order_relaxed) - 1);
  if (clusters == 0) return args.rows == 0;
  config.gridDim = static_cast<unsigned>(clusters) * cluster;
  launch.check(cudaLaunchKernelEx(&config, kernel, args));
  return true;
}

// Smallest cluster whose CTAs hold two rows. Depends on the row length alone, as the summation order does.
template <class G>
bool stream(const OpLaunch& launch, const LossRows<T, G>& args) {
  const std::int64_t pieces = args.vocab / kVectorWidth<T>;
  unsigned cluster = 2;
  while (cluster < kMaxCluster && pieces > std::int64_t{cluster} * kThreads * kMostVectors) cluster *= 2;
  const std::int64_t step = std::int64_t{cluster} * kThreads;
  switch ((pieces + step - 1) / step) {
    case kFewestVectors: return launch_streamed<G, kFewestVectors>(launch, args, cluster);
    case 5: return launch_streamed<G, 5>(launch, args, cluster);
    case kMostVectors: return launch_streamed<G, kMostVectors>(launch, args, cluster);
    default: return false;
  }
}

}  // namespace

bool stream_loss(const OpLaunch& launch, const LossRows<bfloat16, float>& args) {
  return stream(launch, args);
}
bool stream_loss(const OpLaunch& launch, const LossRows<bfloat16, bfloat16>& args) {
  return stream(launch, args);
}
bool stream_loss(const OpLaunch& launch, const LossRows<bfloat16, GradientCode>& args) {
  return stream(launch, args);
}

}  // namespace quench::cuda
