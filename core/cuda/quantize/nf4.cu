#include "core/cuda/quantize/nf4_scale.cuh"
#include "core/cuda/quantize/quantize_common.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

// Eight elements of one block per thread, eight threads a block. groups: pieces of eight elements.
template <class T>
__global__ __launch_bounds__(kThreads) void nf4_encode_kernel(const T* x, std::uint32_t* codes, float* amax,
                                                              std::int64_t groups, bool wide) {
  constexpr int kLanes = Nf4::kBlockSize / kPiece;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t g = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; g < groups; g += step) {
    const Piece piece = load_piece(x + g * kPiece, wide);
    float most = 0;
    bool finite = true;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      most = fmaxf(most, fabsf(piece[i]));
      finite &= isfinite(piece[i]);
    }
    if (!finite) most = INFINITY;
    const unsigned lanes = 0xFFu << (threadIdx.x & 24u);
#pragma unroll
    for (int offset = 1; offset < kLanes; offset *= 2) most = fmaxf(most, __shfl_xor_sync(lanes, most, offset, kLanes));
    const float divisor = most > 0 ? most : 1.0f;
    std::uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < kPiece / 2; ++i) {
      word |= std::uint32_t{Nf4::encode(piece[2 * i] / divisor)} << (8 * i + 4);
      word |= std::uint32_t{Nf4::encode(piece[2 * i + 1] / divisor)} << (8 * i);
    }
    codes[g] = word;
    if (g % kLanes == 0) amax[g / kLanes] = most;
  }
}

void nf4_encode_cuda(const Nf4EncodeArgs& args) {
  const OpLaunch launch("nf4_encode", {&args.x, &args.codes, &args.amax});
  const std::int64_t groups = args.x.numel() / kPiece;
  dispatch<float, bfloat16>(args.x.dtype(), "nf4_encode", [&]<class T>() {
    launch(nf4_encode_kernel<T>, dim3(strided_grid(launch.device(), groups, kThreads, 8, 4)), kThreads, 0,
           args.x.data<T>(), reinterpret_cast<std::uint32_t*>(args.codes.raw_data()), args.amax.data<float>(), groups,
           aligned(args.x.raw_data()));
  });
}

// Eight elements of one block per thread.
template <class T>
__global__ __launch_bounds__(kThreads) void nf4_dequantize_kernel(const std::uint32_t* codes, Nf4Scales scales, T* out,
                                                                  std::int64_t groups, bool wide) {
  __shared__ float values[16];
  if (threadIdx.x < 16) values[threadIdx.x] = Nf4::decode(static_cast<std::uint8_t>(threadIdx.x));
  __syncthreads();
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t g = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; g < groups; g += step) {
    const float scale = scales[g / (Nf4::kBlockSize / kPiece)];
    const std::uint32_t word = codes[g];
    Piece piece;
#pragma unroll
    for (int i = 0; i < kPiece / 2; ++i) {
      piece[2 * i] = values[word >> (8 * i + 4) & 15u] * scale;
      piece[2 * i + 1] = values[word >> (8 * i) & 15u] * scale;
    }
    store_piece(out + g * kPiece, piece, wide);
  }
}

void nf4_dequantize_cuda(const Nf4DequantizeArgs& args) {
  const OpLaunch launch("nf4_dequantize", {&args.x.codes, &args.x.scales, &args.x.factors, &args.x.mean, &args.out});
  const std::int64_t groups = args.out.numel() / kPiece;
  QUENCH_CHECK(aligned(args.x.codes.raw_data(), 4), "nf4_dequantize: codes do not begin at a multiple of 4 bytes");
  dispatch<float, bfloat16>(args.out.dtype(), "nf4_dequantize", [&]<class T>() {
    launch(nf4_dequantize_kernel<T>, dim3(strided_grid(launch.device(), groups, kThreads, 8, 4)), kThreads, 0,
           reinterpret_cast<const std::uint32_t*>(args.x.codes.raw_data()), Nf4Scales(args.x), args.out.data<T>(),
           groups, aligned(args.out.raw_data()));
  });
}

QUENCH_CUDA_KERNEL(nf4_encode_slot, nf4_encode_cuda);
QUENCH_CUDA_KERNEL(nf4_dequantize_slot, nf4_dequantize_cuda);

}  // namespace
}  // namespace quench::cuda
