// Fake quantization in the grids of GGUF: a thread for each group of a block.

#include "core/cuda/common/launch.h"
#include "core/gguf_types/block_fits.h"
#include "core/ops/quantize/round_gguf.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 128;

// Place of element i of a group within the block: groups are adjacent, or interleaved.
template <class Fit>
__device__ constexpr int place(int group, int i) {
  return std::is_same_v<Fit, TernaryFit> ? i * Fit::kGroups + group : group * Fit::kSize + i;
}

// Elements in f32 or bf16; one kernel for both, which is long.
struct Elements {
  void* data;
  bool wide;  // f32

  explicit Elements(const Tensor& x) : data(x.raw_data()), wide(x.dtype() == DType::f32) {}
  __device__ float get(std::int64_t i) const {
    return wide ? static_cast<const float*>(data)[i] : static_cast<float>(static_cast<const bfloat16*>(data)[i]);
  }
  __device__ void set(std::int64_t i, float value) const {
    if (wide)
      static_cast<float*>(data)[i] = value;
    else
      static_cast<bfloat16*>(data)[i] = bfloat16(value);
  }
};

// One kernel with and without importance.
template <class Fit>
__global__ __launch_bounds__(kThreads) void round_gguf_kernel(Elements x, const float* importance, Elements out,
                                                              std::int64_t groups, std::int64_t blocks_per_row) {
  constexpr int kSize = Fit::kSize, kGroups = Fit::kGroups;
  static_assert(32 % kGroups == 0);
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (thread >= groups) return;  // with its whole block
  const std::int64_t block = thread / kGroups, first = block * (kGroups * kSize);
  const int group = static_cast<int>(thread % kGroups);
  const LaneTeam<kGroups> team;
  float values[1][kSize], weights[1][kSize];
#pragma unroll
  for (int i = 0; i < kSize; ++i) values[0][i] = x.get(first + place<Fit>(group, i));
  if (importance != nullptr) {
    const float* from = importance + block % blocks_per_row * (kGroups * kSize);
#pragma unroll
    for (int i = 0; i < kSize; ++i) weights[0][i] = from[place<Fit>(group, i)];
  } else {
#pragma unroll
    for (int i = 0; i < kSize; ++i) weights[0][i] = Fit::PlainWeights::of(values[0][i]);
  }
  if (importance != nullptr || !std::is_same_v<typename Fit::PlainWeights, EvenWeights>)
    to_error_weights<kSize>(team, weights);
  Fit::round(team, values, weights);
#pragma unroll
  for (int i = 0; i < kSize; ++i) out.set(first + place<Fit>(group, i), values[0][i]);
}

template <class Fit>
void round_under(const RoundGgufArgs& args) {
  const OpLaunch launch("round_gguf", {&args.x, &args.importance, &args.out});
  const std::int64_t groups = args.x.numel() / Fit::kSize;
  launch(round_gguf_kernel<Fit>, static_cast<unsigned>((groups + kThreads - 1) / kThreads), kThreads, 0,
         Elements(args.x), args.importance.defined() ? args.importance.data<float>() : nullptr, Elements(args.out),
         groups, args.x.size(1) / (Fit::kSize * Fit::kGroups));
}

void round_gguf_cuda(const RoundGgufArgs& args) {
  switch (args.type) {
    case BlockType::q8_0: return round_under<Q8_0Fit>(args);
    case BlockType::q4_0:
      return args.importance.defined() ? round_under<Q4_0Fit>(args) : round_under<PlainQ4_0Fit>(args);
    case BlockType::q4_1: return round_under<Q4_1Fit>(args);
    case BlockType::q5_0: return round_under<Q5_0Fit>(args);
    case BlockType::q5_1: return round_under<Q5_1Fit>(args);
    case BlockType::q2_k: return round_under<Q2_KFit>(args);
    case BlockType::q3_k: return round_under<Q3_KFit>(args);
    case BlockType::q4_k: return round_under<Q4_KFit>(args);
    case BlockType::q5_k: return round_under<Q5_KFit>(args);
    case BlockType::q6_k: return round_under<Q6_KFit>(args);
    case BlockType::iq4_nl: return round_under<Iq4NlFit>(args);
    case BlockType::iq4_xs: return round_under<Iq4XsFit>(args);
    case BlockType::tq1_0:
    case BlockType::tq2_0: return round_under<TernaryFit>(args);
    default: QUENCH_FAIL(ErrorCode::unsupported, "round_gguf: a type without a kernel");
  }
}

QUENCH_CUDA_KERNEL(round_gguf_slot, round_gguf_cuda);

}  // namespace
}  // namespace quench::cuda
