// Quantization to blocks of GGUF types, and fake quantization in their grids: a thread for each group of a block.

#include "core/cuda/common/launch.h"
#include "core/gguf_types/block_layouts.h"
#include "core/ops/quantize/quantize_gguf.h"
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

// Values to `out`, or bytes to `blocks`; one kernel for both, with and without importance.
template <class Fit, class Layout>
__global__ __launch_bounds__(kThreads) void round_gguf_kernel(Elements x, const float* importance, Elements out,
                                                              std::uint8_t* blocks, std::int64_t groups,
                                                              std::int64_t blocks_per_row) {
  constexpr int kSize = Fit::kSize, kGroups = Fit::kGroups;
  static_assert(32 % kGroups == 0);
  __shared__ BlockNumbers<kSize, kGroups> numbers[kThreads / kGroups];
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
  const auto found = Fit::find(team, values, weights);
  if (blocks == nullptr) {
    Fit::round(found, values);
#pragma unroll
    for (int i = 0; i < kSize; ++i) out.set(first + place<Fit>(group, i), values[0][i]);
    return;
  }
  auto& own = numbers[threadIdx.x / kGroups];
  Fit::put(team, found, values, own);
  team.sync();
  if (team.leads()) Layout::pack(own, blocks + block * Layout::kBytes);
}

struct Job {
  const Tensor &x, &importance, &out;  // out: values or blocks
  BlockType type;
};

template <class Fit, class Layout>
void run(const Job& job) {
  const OpLaunch launch("round_gguf", {&job.x, &job.importance, &job.out});
  const std::int64_t groups = job.x.numel() / Fit::kSize;
  launch(round_gguf_kernel<Fit, Layout>, static_cast<unsigned>((groups + kThreads - 1) / kThreads), kThreads, 0,
         Elements(job.x), job.importance.defined() ? job.importance.data<float>() : nullptr, Elements(job.out),
         job.out.dtype() == DType::u8 ? job.out.data<std::uint8_t>() : nullptr, groups,
         job.x.size(1) / (Fit::kSize * Fit::kGroups));
}

void run_type(const Job& job) {
  switch (job.type) {
    case BlockType::q8_0: return run<Q8_0Fit, Q8_0Layout>(job);
    case BlockType::q4_0:
      return job.importance.defined() ? run<Q4_0Fit, HalfBytesLayout>(job) : run<PlainQ4_0Fit, HalfBytesLayout>(job);
    case BlockType::q4_1: return run<Q4_1Fit, Q4_1Layout>(job);
    case BlockType::q5_0: return run<Q5_0Fit, Q5_0Layout>(job);
    case BlockType::q5_1: return run<Q5_1Fit, Q5_1Layout>(job);
    case BlockType::q2_k: return run<Q2_KFit, Q2_KLayout>(job);
    case BlockType::q3_k: return run<Q3_KFit, Q3_KLayout>(job);
    case BlockType::q4_k: return run<Q4_KFit, Q4_KLayout>(job);
    case BlockType::q5_k: return run<Q5_KFit, Q5_KLayout>(job);
    case BlockType::q6_k: return run<Q6_KFit, Q6_KLayout>(job);
    case BlockType::iq4_nl: return run<Iq4NlFit, HalfBytesLayout>(job);
    case BlockType::iq4_xs: return run<Iq4XsFit, Iq4XsLayout>(job);
    case BlockType::tq1_0: return run<TernaryFit, Tq1_0Layout>(job);
    case BlockType::tq2_0: return run<TernaryFit, Tq2_0Layout>(job);
    default: QUENCH_FAIL(ErrorCode::unsupported, "round_gguf: a type without a kernel");
  }
}

void round_gguf_cuda(const RoundGgufArgs& args) {
  run_type({args.x, args.importance, args.out, args.type});
}

void quantize_gguf_cuda(const QuantizeGgufArgs& args) {
  run_type({args.x, args.importance, args.blocks, args.type});
}

QUENCH_CUDA_KERNEL(round_gguf_slot, round_gguf_cuda);
QUENCH_CUDA_KERNEL(quantize_gguf_slot, quantize_gguf_cuda);

}  // namespace
}  // namespace quench::cuda
