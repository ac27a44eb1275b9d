// Dequantization of all formats.

#include "core/cuda/quantize/block_scale.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

// code / scale, one CTA per row; `count` elements, the last row may be short. Scale at scales[row * row_step], or per
// column with kByColumn.
template <class T, class Element, bool kByColumn>
__global__ __launch_bounds__(kThreads) void apply_scales_kernel(const std::uint8_t* payload, const float* scales,
                                                                T* out, std::int64_t count, std::int64_t rows,
                                                                std::int64_t columns, std::int64_t row_step,
                                                                bool wide) {
  const std::int64_t row = blockIdx.x;
  const float* by = scales + (kByColumn ? row / rows * columns : row * row_step);
  const std::int64_t end = min(columns, count - row * columns);
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * kPiece; c < end; c += kThreads * kPiece) {
    const auto here = static_cast<int>(min(static_cast<std::int64_t>(kPiece), end - c));
    const uint2 codes = load_codes(payload + row * columns + c, wide, here);
    Piece piece;
#pragma unroll
    for (int i = 0; i < kPiece; ++i)
      if (i < here) piece[i] = decode_scaled<Element>(code_at(codes, i), kByColumn ? by[c + i] : *by);
    store_piece(out + row * columns + c, piece, wide, here);
  }
}

// code * factor(scale byte), rowwise blocks, eight elements per thread.
template <class T, class Element, int kBlock, class Factor>
__global__ __launch_bounds__(kThreads) void multiply_blocks_kernel(const std::uint8_t* payload,
                                                                   const std::uint8_t* scales, T* out,
                                                                   std::int64_t groups, Factor factor, bool wide) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t g = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; g < groups; g += stride) {
    uint2 codes;
    if constexpr (Element::kBits == 4)
      codes = unpack_nibbles(reinterpret_cast<const std::uint32_t*>(payload)[g]);
    else
      codes = reinterpret_cast<const uint2*>(payload)[g];
    const float by = factor(scales[g / (kBlock / kPiece)]);
    Piece piece;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) piece[i] = Element::decode(code_at(codes, i)) * by;
    store_piece(out + g * kPiece, piece, wide);
  }
}

// Payload [C, R] into [R, C], one thread per block, adjacent columns over a warp.
template <class T, class Element, int kBlock, class Factor>
__global__ __launch_bounds__(kThreads) void multiply_transposed_blocks_kernel(const std::uint8_t* payload,
                                                                              const std::uint8_t* scales, T* out,
                                                                              MatrixBatch shape, std::int64_t strips,
                                                                              std::int64_t parts, Factor factor) {
  const std::int64_t row_blocks = shape.rows / kBlock;
  const std::int64_t strip = blockIdx.x % strips, part = blockIdx.x / strips % parts,
                     batch = blockIdx.x / strips / parts;
  const std::int64_t column = strip * 32 + threadIdx.x % 32, row_block = part * (kThreads / 32) + threadIdx.x / 32;
  if (column >= shape.columns || row_block >= row_blocks) return;
  const std::int64_t block = (batch * shape.columns + column) * row_blocks + row_block;
  const float by = factor(scales[block]);
  T* to = out + (batch * shape.rows + row_block * kBlock) * shape.columns + column;
#pragma unroll
  for (int k = 0; k < kBlock / kPiece; ++k) {
    uint2 codes;
    if constexpr (Element::kBits == 4)
      codes = unpack_nibbles(reinterpret_cast<const std::uint32_t*>(payload)[block * (kBlock / kPiece) + k]);
    else
      codes = reinterpret_cast<const uint2*>(payload)[block * (kBlock / kPiece) + k];
#pragma unroll
    for (int i = 0; i < kPiece; ++i)
      to[(k * kPiece + i) * shape.columns] = from_float<T>(Element::decode(code_at(codes, i)) * by);
  }
}

template <int kBlock, class T, class Element, class Factor>
void multiply_blocks(const DequantizeArgs& args, const OpLaunch& launch, const Factor& factor) {
  const QuantTensor& x = args.x;
  QUENCH_CHECK_AS(ErrorCode::unsupported, x.format().block_size == kBlock, "dequantize: blocks of {}, expected {}",
                  x.format().block_size, kBlock);
  const std::uint8_t *payload = bytes_of(x.payload()), *scales = bytes_of(x.scales());
  QUENCH_CHECK(aligned(payload, 8), "dequantize: the payload does not begin at a multiple of {} bytes", 8);
  T* out = args.out.data<T>();
  if (x.format().orientation == Orientation::natural) {
    const std::int64_t groups = args.out.numel() / kPiece;
    launch(multiply_blocks_kernel<T, Element, kBlock, Factor>,
           dim3(strided_grid(launch.device(), groups, kThreads, 8, 4)), kThreads, 0, payload, scales, out, groups,
           factor, aligned(out));
    return;
  }
  const MatrixBatch shape(args.out.shape());
  constexpr int kParts = kThreads / 32;
  const std::int64_t strips = (shape.columns + 31) / 32, parts = (shape.rows / kBlock + kParts - 1) / kParts;
  launch(multiply_transposed_blocks_kernel<T, Element, kBlock, Factor>,
         dim3(static_cast<unsigned>(shape.batch * strips * parts)), kThreads, 0, payload, scales, out, shape, strips,
         parts, factor);
}

template <class T, class Element>
void apply_scales(const DequantizeArgs& args, const OpLaunch& launch) {
  const MatrixBatch shape(args.out.shape());
  const Granularity granularity = args.x.format().granularity;
  const std::uint8_t* payload = bytes_of(args.x.payload());
  T* out = args.out.data<T>();
  // Tensorwise: rows of any length, for enough CTAs.
  constexpr std::int64_t kTensorRow = 8192;
  const std::int64_t count = shape.numel(), columns = granularity == Granularity::tensor ? kTensorRow : shape.columns;
  const bool wide = aligned(payload, 8) && aligned(out) && columns % kPiece == 0;
  launch(granularity == Granularity::column ? apply_scales_kernel<T, Element, true>
                                            : apply_scales_kernel<T, Element, false>,
         dim3(static_cast<unsigned>((count + columns - 1) / columns)), kThreads, 0, payload,
         args.x.scales().data<float>(), out, count, shape.rows, columns,
         granularity == Granularity::row ? std::int64_t{1} : std::int64_t{0}, wide);
}

void dequantize_cuda(const DequantizeArgs& args) {
  const QuantTensor& x = args.x;
  const QuantFormat& format = x.format();
  const OpLaunch launch("dequantize", {&x.payload(), &x.scales(), &x.global_scale(), &args.out});
  if (format.scale_dtype == DType::f32) {
    dispatch_quantize<E4m3, E5m2, Int8Code>("dequantize", args.out.dtype(), format.element,
                                            [&]<class T, class Element>() { apply_scales<T, Element>(args, launch); });
  } else if (format.scale_dtype == DType::f8_e8m0) {
    dispatch_quantize<E4m3, E5m2, E2m3, E3m2, E2m1>(
        "dequantize", args.out.dtype(), format.element,
        [&]<class T, class Element>() { multiply_blocks<kMxBlockSize, T, Element>(args, launch, MxFactor()); });
  } else {
    const Nvfp4Factor factor{x.global_scale().defined() ? x.global_scale().data<float>() : nullptr};
    dispatch_quantize<E2m1>("dequantize", args.out.dtype(), format.element, [&]<class T, class Element>() {
      multiply_blocks<kNvfp4BlockSize, T, Element>(args, launch, factor);
    });
  }
}

QUENCH_CUDA_KERNEL(dequantize_slot, dequantize_cuda);

}  // namespace
}  // namespace quench::cuda
