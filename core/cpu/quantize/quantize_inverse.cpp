// Dequantization of all formats.

#include "core/cpu/quantize/quantize_common.h"
#include "core/number/code_scale.h"

namespace quench {
namespace {

// decode_scaled() of code_scale.h.
template <class Element, class T>
void apply_scales(const std::uint8_t* payload, const float* scales, T* out, const MatrixBatch& shape,
                  Granularity granularity) {
  const std::int64_t rows = shape.batch * shape.rows, columns = shape.columns;
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelElements)
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::uint8_t* from = payload + r * columns;
    T* to = out + r * columns;
    if (granularity == Granularity::column) {
      const float* by = scales + r / shape.rows * columns;
      for (std::int64_t c = 0; c < columns; ++c) to[c] = T(decode_scaled<Element>(from[c], by[c]));
    } else {
      const float by = granularity == Granularity::row ? scales[r] : *scales;
      for (std::int64_t c = 0; c < columns; ++c) to[c] = T(decode_scaled<Element>(from[c], by));
    }
  }
}

template <class Element>
constexpr std::int64_t code_bytes(std::int64_t count) {
  return Element::kBits == 4 ? count / 2 : count;
}

// One per byte.
template <class Element>
inline void load_codes(const std::uint8_t* payload, std::int64_t count, std::uint8_t* codes) {
  if constexpr (Element::kBits == 4)
    unpack_codes(payload, count, codes);
  else
    std::memcpy(codes, payload, static_cast<std::size_t>(count));
}

// code * factor(scale byte), rowwise blocks.
template <class Element, std::int64_t kBlock, class T, class Factor>
void multiply_blocks(const std::uint8_t* payload, const std::uint8_t* scales, T* out, std::int64_t blocks,
                     const Factor& factor) {
#pragma omp parallel for schedule(static) if (blocks * kBlock >= kParallelElements)
  for (std::int64_t first = 0; first < blocks; first += kBlocksAtOnce) {
    const std::int64_t group = std::min(kBlocksAtOnce, blocks - first);
    std::uint8_t codes[kBlocksAtOnce * kBlock];
    float by[kBlocksAtOnce], values[kBlocksAtOnce * kBlock];
    load_codes<Element>(payload + code_bytes<Element>(first * kBlock), group * kBlock, codes);
    for (std::int64_t b = 0; b < group; ++b) by[b] = factor(scales[first + b]);
    for (std::int64_t i = 0; i < group * kBlock; ++i) values[i] = Element::decode(codes[i]);
    for (std::int64_t b = 0; b < group; ++b)
      for (std::int64_t i = 0; i < kBlock; ++i) values[b * kBlock + i] *= by[b];
    for (std::int64_t i = 0; i < group * kBlock; ++i) out[first * kBlock + i] = T(values[i]);
  }
}

// Payload [C, R] into [R, C], up to kStripColumns columns by kBlock rows.
template <class Element, std::int64_t kBlock, class T, class Factor>
void multiply_strip(const std::uint8_t* payload, const std::uint8_t* scales, std::int64_t blocks_per_column,
                    std::int64_t width, T* out, std::int64_t stride, const Factor& factor) {
  float by[kStripColumns] = {};
  std::uint8_t codes[kStripColumns][kBlock] = {}, turned[kBlock][kStripColumns];
  for (std::int64_t c = 0; c < width; ++c) {
    by[c] = factor(scales[c * blocks_per_column]);
    load_codes<Element>(payload + code_bytes<Element>(c * blocks_per_column * kBlock), kBlock, codes[c]);
  }
  transpose_bytes(codes, turned);
  for (std::int64_t i = 0; i < kBlock; ++i) {
    float values[kStripColumns];
    for (std::int64_t c = 0; c < kStripColumns; ++c) values[c] = Element::decode(turned[i][c]) * by[c];
    for (std::int64_t c = 0; c < width; ++c) out[i * stride + c] = T(values[c]);
  }
}

template <class Element, std::int64_t kBlock, class T, class Factor>
void multiply_transposed_blocks(const std::uint8_t* payload, const std::uint8_t* scales, T* out,
                                const MatrixBatch& shape, const Factor& factor) {
  const std::int64_t row_blocks = shape.rows / kBlock, strips = (shape.columns + kStripColumns - 1) / kStripColumns;
#pragma omp parallel for collapse(3) schedule(static) if (shape.numel() >= kParallelElements)
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t s = 0; s < strips; ++s) {
      for (std::int64_t k = 0; k < row_blocks; ++k) {
        const std::int64_t first = s * kStripColumns, block = (b * shape.columns + first) * row_blocks + k;
        multiply_strip<Element, kBlock>(payload + code_bytes<Element>(block * kBlock), scales + block, row_blocks,
                                        std::min(kStripColumns, shape.columns - first),
                                        out + (b * shape.rows + k * kBlock) * shape.columns + first, shape.columns,
                                        factor);
      }
    }
  }
}

template <class Element, std::int64_t kBlock, class T, class Factor>
void dequantize_blocks(const DequantizeArgs& args, const Factor& factor) {
  const QuantTensor& x = args.x;
  QUENCH_CHECK_AS(ErrorCode::unsupported, x.format().block_size == kBlock, "dequantize: {}, expected blocks of {}",
                  x.describe(), kBlock);
  const auto* payload = static_cast<const std::uint8_t*>(x.payload().raw_data());
  const auto* scales = static_cast<const std::uint8_t*>(x.scales().raw_data());
  T* out = args.out.data<T>();
  if (x.format().orientation == Orientation::natural)
    multiply_blocks<Element, kBlock>(payload, scales, out, args.out.numel() / kBlock, factor);
  else
    multiply_transposed_blocks<Element, kBlock>(payload, scales, out, MatrixBatch(args.out.shape()), factor);
}

void dequantize_cpu(const DequantizeArgs& args) {
  const QuantTensor& x = args.x;
  const QuantFormat& format = x.format();
  if (format.scale_dtype == DType::f32) {
    dispatch_quantize<E4m3, E5m2, Int8Code>(
        "dequantize", args.out.dtype(), format.element, [&]<class T, class Element>() {
          apply_scales<Element>(static_cast<const std::uint8_t*>(x.payload().raw_data()), x.scales().data<float>(),
                                args.out.data<T>(), MatrixBatch(x.shape()), format.granularity);
        });
  } else if (format.scale_dtype == DType::f8_e8m0) {
    // Exact in f32, down to 2^-149: one rounding to bf16 is correct.
    dispatch_quantize<E4m3, E5m2, E2m3, E3m2, E2m1>(
        "dequantize", args.out.dtype(), format.element,
        [&]<class T, class Element>() { dequantize_blocks<Element, kMxBlockSize, T>(args, decode_e8m0); });
  } else {
    const float global = x.global_scale().defined() ? *x.global_scale().data<float>() : 1.0f;
    dispatch_quantize<E2m1>("dequantize", args.out.dtype(), format.element, [&]<class T, class Element>() {
      dequantize_blocks<Element, kNvfp4BlockSize, T>(args,
                                                     [&](std::uint8_t code) { return global * E4m3::decode(code); });
    });
  }
}

QUENCH_CPU_KERNEL(dequantize_slot, dequantize_cpu);

}  // namespace
}  // namespace quench
