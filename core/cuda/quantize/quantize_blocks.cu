// MX and NVFP4 casts: rowwise; for MX also columnwise, transposed.

#include "core/cuda/quantize/block_scale.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

template <class Element>
inline constexpr int kCodeBytes = Element::kBits == 4 ? kPiece / 2 : kPiece;  // per vector

template <class Element>
__device__ uint2 encode_block_part(const Piece& piece, const BlockScale& scale) {
  if (scale.is_nan) return make_uint2(Element::kNanCode * 0x01010101u, Element::kNanCode * 0x01010101u);
  return encode_piece<Element>(piece, scale.multiplier);
}

// One vector per thread; adjacent threads share a block.
template <class T, class Element, int kBlock, class Scale>
__global__ __launch_bounds__(kThreads) void cast_blocks_kernel(const T* x, std::uint8_t* out, std::uint8_t* scales,
                                                               std::int64_t groups, Scale scale, bool wide) {
  constexpr int kBlockThreads = kBlock / kPiece;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  // Warp-uniform trip count for the shuffles.
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x / 32 * 32; first < groups;
       first += stride) {
    const std::int64_t g = first + threadIdx.x % 32;
    const bool active = g < groups;
    const Piece piece = load_piece(x + (active ? g : 0) * kPiece, wide);
    std::uint32_t most = max_magnitude(piece);
#pragma unroll
    for (int offset = 1; offset < kBlockThreads; offset *= 2)
      most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, offset));
    if (!active) continue;
    const BlockScale by = scale(__uint_as_float(most));
    const uint2 codes = encode_block_part<Element>(piece, by);
    std::uint8_t* to = out + g * kCodeBytes<Element>;
    if constexpr (Element::kBits == 4)
      *reinterpret_cast<std::uint32_t*>(to) = pack_nibbles(codes);
    else
      *reinterpret_cast<uint2*>(to) = codes;
    if (g % kBlockThreads == 0) scales[g / kBlockThreads] = by.code;
  }
}

// One thread per 32-row block of a column; adjacent columns over a warp, row blocks over a CTA's warps.
template <class T, class Element>
__global__ __launch_bounds__(kThreads) void cast_columns_kernel(const T* x, std::uint8_t* out, std::uint8_t* scales,
                                                                MatrixBatch shape, std::int64_t strips,
                                                                std::int64_t parts, MxScale<Element> scale) {
  const std::int64_t row_blocks = shape.rows / kMxBlockSize;
  const std::int64_t strip = blockIdx.x % strips, part = blockIdx.x / strips % parts,
                     batch = blockIdx.x / strips / parts;
  const std::int64_t column = strip * 32 + threadIdx.x % 32, row_block = part * (kThreads / 32) + threadIdx.x / 32;
  if (column >= shape.columns || row_block >= row_blocks) return;
  const T* from = x + (batch * shape.rows + row_block * kMxBlockSize) * shape.columns + column;
  constexpr int kGroups = kMxBlockSize / kPiece;
  T raw[kMxBlockSize];
#pragma unroll
  for (int i = 0; i < kMxBlockSize; ++i) raw[i] = from[i * shape.columns];
  std::uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < kMxBlockSize; ++i) most = max(most, magnitude(to_float(raw[i])));
  const BlockScale by = scale(__uint_as_float(most));
  uint2 codes[kGroups];
#pragma unroll
  for (int k = 0; k < kGroups; ++k) {
    Piece piece;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) piece[i] = to_float(raw[k * kPiece + i]);
    codes[k] = encode_block_part<Element>(piece, by);
  }
  const std::int64_t block = (batch * shape.columns + column) * row_blocks + row_block;
  auto* to = reinterpret_cast<uint4*>(out + block * kGroups * kCodeBytes<Element>);
  if constexpr (Element::kBits == 4) {
    to[0] = make_uint4(pack_nibbles(codes[0]), pack_nibbles(codes[1]), pack_nibbles(codes[2]), pack_nibbles(codes[3]));
  } else {
    to[0] = make_uint4(codes[0].x, codes[0].y, codes[1].x, codes[1].y);
    to[1] = make_uint4(codes[2].x, codes[2].y, codes[3].x, codes[3].y);
  }
  scales[block] = by.code;
}

// Payloads of the ops are aligned for vector stores.
void check_payload(std::string_view op, const QuantTensor& out) {
  QUENCH_CHECK(aligned(out.payload().raw_data()), "{}: the payload does not begin at a multiple of 16 bytes", op);
}

template <int kBlock, class T, class Element, class Scale>
void cast_natural(const OpLaunch& launch, const Tensor& x, const QuantTensor& out, const Scale& scale) {
  const std::int64_t groups = x.numel() / kPiece;
  launch(cast_blocks_kernel<T, Element, kBlock, Scale>, dim3(strided_grid(launch.device(), groups, kThreads, 8, 4)),
         kThreads, 0, x.data<T>(), bytes_of(out.payload()), bytes_of(out.scales()), groups, scale,
         aligned(x.raw_data()));
}

void mx_cast_cuda(const MxCastArgs& args) {
  const OpLaunch launch("mx_cast", {&args.x, &args.out.payload(), &args.out.scales()});
  const QuantFormat& format = args.out.format();
  check_payload("mx_cast", args.out);
  dispatch_quantize<E4m3, E5m2, E2m3, E3m2, E2m1>(
      "mx_cast", args.x.dtype(), format.element, [&]<class T, class Element>() {
        const MxScale<Element> scale{args.mode};
        if (format.orientation == Orientation::natural)
          return cast_natural<kMxBlockSize, T, Element>(launch, args.x, args.out, scale);
        const MatrixBatch shape(args.x.shape());
        constexpr int kParts = kThreads / 32;
        const std::int64_t strips = (shape.columns + 31) / 32,
                           parts = (shape.rows / kMxBlockSize + kParts - 1) / kParts;
        launch(cast_columns_kernel<T, Element>, dim3(static_cast<unsigned>(shape.batch * strips * parts)), kThreads, 0,
               args.x.data<T>(), bytes_of(args.out.payload()), bytes_of(args.out.scales()), shape, strips, parts,
               scale);
      });
}

__global__ void nvfp4_global_scale_kernel(const float* amax, float* scale) {
  *scale = nvfp4_global_scale(*amax);
}

void nvfp4_global_scale_cuda(const Nvfp4GlobalScaleArgs& args) {
  const OpLaunch launch("nvfp4_global_scale", {&args.amax, &args.scale});
  launch(nvfp4_global_scale_kernel, 1, 1, 0, args.amax.data<float>(), args.scale.data<float>());
}

void nvfp4_cast_cuda(const Nvfp4CastArgs& args) {
  const Tensor& global = args.out.global_scale();
  const OpLaunch launch("nvfp4_cast", {&args.x, &args.out.payload(), &args.out.scales(), &global});
  check_payload("nvfp4_cast", args.out);
  const Nvfp4Scale scale{global.defined() ? global.data<float>() : nullptr};
  dispatch<float, bfloat16>(args.x.dtype(), "nvfp4_cast", [&]<class T>() {
    cast_natural<kNvfp4BlockSize, T, E2m1>(launch, args.x, args.out, scale);
  });
}

QUENCH_CUDA_KERNEL(mx_cast_slot, mx_cast_cuda);
QUENCH_CUDA_KERNEL(nvfp4_global_scale_slot, nvfp4_global_scale_cuda);
QUENCH_CUDA_KERNEL(nvfp4_cast_slot, nvfp4_cast_cuda);

}  // namespace
}  // namespace quench::cuda
