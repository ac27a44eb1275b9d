#include "core/ops/quantize/quant_error.h"

#include "core/cuda/common/reduce.cuh"
#include "core/cuda/quantize/quantize_common.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 4;  // per thread
constexpr int kRounds = 8;
constexpr std::int64_t kChunk = std::int64_t{kThreads} * kPiece * kInFlight * kRounds;  // per partial sum
constexpr int kFinalThreads = 512;
constexpr int kFields = QuantError::kFields;

struct Largest {  // NaN propagates
  __device__ double operator()(double a, double b) const { return a > b || a != a ? a : b; }
};

// QuantError's fields to to[0..4]; the last is a maximum.
template <int kBlock>
__device__ void reduce_fields(const double (&fields)[kFields], double* to) {
  __shared__ double scratch[33];
#pragma unroll
  for (int f = 0; f < kFields; ++f) {
    const double total = f + 1 < kFields ? block_reduce<kBlock>(fields[f], 0.0, scratch, Sum())
                                         : block_reduce<kBlock>(fields[f], 0.0, scratch, Largest());
    if (threadIdx.x == 0) to[f] = total;
  }
}

struct Loss {
  double signal = 0, noise = 0;
  std::uint32_t saturated = 0, underflows = 0, most = 0;

  template <class Element>
  __device__ void add(float x, std::uint8_t code, float scale) {
    const float lost = x - decode_scaled<Element>(code, scale);
    const auto wide = static_cast<double>(x), wide_lost = static_cast<double>(lost);
    signal = fma(wide, wide, signal);  // exact: 24-bit mantissas squared fit into 53 bits
    noise = fma(wide_lost, wide_lost, noise);
    saturated += is_clipped<Element>(x * encode_factor<Element>(scale)) ? 1 : 0;
    underflows += is_zero<Element>(code) && x != 0.0f && magnitude(x) < kF32Infinity ? 1 : 0;
    most = max(most, magnitude(x));
  }
};

// One CTA per chunk; fixed assignment of elements to threads. Bound by f64 arithmetic.
template <class T, class Element, Granularity kBy>
__global__ __launch_bounds__(kThreads) void chunk_error_kernel(const T* x, const std::uint8_t* codes,
                                                               const float* scales, std::int64_t numel,
                                                               std::int64_t columns, bool wide, double* parts) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kChunk;
  Loss loss;
  for (int round = 0; round < kRounds; ++round) {
    PackedPiece<T> values[kInFlight];
    uint2 words[kInFlight];
    std::int64_t first[kInFlight];
    int count[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      first[k] = begin + (std::int64_t{round * kInFlight + k} * kThreads + threadIdx.x) * kPiece;
      count[k] =
          static_cast<int>(max(min(numel - first[k], static_cast<std::int64_t>(kPiece)), static_cast<std::int64_t>(0)));
      values[k] = load_packed_piece(x + first[k], wide, count[k]);
      words[k] = load_codes(codes + first[k], wide, count[k]);
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const Piece piece = unpack(values[k]);
      std::int64_t row = 0, column = 0;
      if constexpr (kBy != Granularity::tensor) {
        row = first[k] / columns;
        column = first[k] - row * columns;
      }
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        if (i >= count[k]) continue;
        const float scale = scales[kBy == Granularity::row ? row : column];
        loss.add<Element>(piece[i], code_at(words[k], i), scale);
        if constexpr (kBy != Granularity::tensor) {
          if (++column == columns) {
            column = 0;
            ++row;
          }
        }
      }
    }
  }
  const double fields[kFields] = {loss.signal, loss.noise, static_cast<double>(loss.saturated),
                                  static_cast<double>(loss.underflows),
                                  static_cast<double>(__uint_as_float(loss.most))};
  reduce_fields<kThreads>(fields, parts + std::int64_t{blockIdx.x} * kFields);
}

// One CTA, in chunk order.
__global__ __launch_bounds__(kFinalThreads) void sum_parts_kernel(const double* parts, std::int64_t chunks,
                                                                  double* out) {
  double fields[kFields] = {};
  for (std::int64_t i = threadIdx.x; i < chunks; i += kFinalThreads) {
#pragma unroll
    for (int f = 0; f < kFields; ++f) {
      const double part = parts[i * kFields + f];
      fields[f] = f + 1 < kFields ? fields[f] + part : Largest()(fields[f], part);
    }
  }
  reduce_fields<kFinalThreads>(fields, out);
}

template <class T, class Element>
auto kernel_for(Granularity granularity) {
  switch (granularity) {
    case Granularity::row: return chunk_error_kernel<T, Element, Granularity::row>;
    case Granularity::column: return chunk_error_kernel<T, Element, Granularity::column>;
    default: return chunk_error_kernel<T, Element, Granularity::tensor>;
  }
}

void quant_error_cuda(const QuantErrorArgs& args) {
  const OpLaunch launch("quant_error", {&args.x, &args.q.payload(), &args.q.scales(), &args.out});
  const std::int64_t numel = args.x.numel(), chunks = (numel + kChunk - 1) / kChunk;
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor parts = Tensor::empty({chunks, kFields}, DType::f64, launch.device());
  const std::uint8_t* codes = bytes_of(args.q.payload());
  const bool wide = aligned(args.x.raw_data()) && aligned(codes, sizeof(uint2));
  dispatch_quantize<E4m3, E5m2, Int8Code>(
      "quant_error", args.x.dtype(), args.q.format().element, [&]<class T, class Element>() {
        launch(kernel_for<T, Element>(args.q.format().granularity), dim3(static_cast<unsigned>(chunks)), kThreads, 0,
               args.x.data<T>(), codes, args.q.scales().data<float>(), numel, args.x.size(1), wide,
               parts.data<double>());
      });
  launch(sum_parts_kernel, 1, kFinalThreads, 0, parts.data<double>(), chunks, args.out.data<double>());
}

QUENCH_CUDA_KERNEL(quant_error_slot, quant_error_cuda);

}  // namespace
}  // namespace quench::cuda
