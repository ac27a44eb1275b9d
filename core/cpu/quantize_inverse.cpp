// Dequantization of every format that the quantization ops produce.

#include "core/cpu/quantize_common.h"

namespace quench {
namespace {

// Codes first .. first + count - 1 of a payload as f32; `first` and `count` are even for packed formats.
template <class Element>
inline void decode_run(const std::uint8_t* payload, std::int64_t first, std::int64_t count, float* out) {
  if constexpr (Element::kBits == 4) {
    for (std::int64_t i = 0; i < count / 2; ++i) {
      const std::uint8_t byte = payload[first / 2 + i];
      out[2 * i] = Element::decode(byte & 0xF);
      out[2 * i + 1] = Element::decode(byte >> 4);
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) out[i] = Element::decode(payload[first + i]);
  }
}

// code / scale, for scales of a tensor, rows or columns.
template <class Element, class T>
void divide_by_scales(const std::uint8_t* payload, const float* scales, T* out, const MatrixBatch& shape,
                      Granularity granularity) {
  const std::int64_t rows = shape.batch * shape.rows, columns = shape.columns;
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelElements)
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::uint8_t* from = payload + r * columns;
    T* to = out + r * columns;
    if (granularity == Granularity::column) {
      const float* by = scales + r / shape.rows * columns;
      for (std::int64_t c = 0; c < columns; ++c) to[c] = T(Element::decode(from[c]) / by[c]);
    } else {
      const float by = granularity == Granularity::row ? scales[r] : *scales;
      for (std::int64_t c = 0; c < columns; ++c) to[c] = T(Element::decode(from[c]) / by);
    }
  }
}

// code * factor(scale byte) of blocks along the last axis.
template <class Element, std::int64_t kBlock, class T, class Factor>
void multiply_blocks(const std::uint8_t* payload, const std::uint8_t* scales, T* out, std::int64_t blocks,
                     const Factor& factor) {
#pragma omp parallel for schedule(static) if (blocks * kBlock >= kParallelElements)
  for (std::int64_t b = 0; b < blocks; ++b) {
    const float by = factor(scales[b]);
    float values[kBlock];
    decode_run<Element>(payload, b * kBlock, kBlock, values);
    for (std::int64_t i = 0; i < kBlock; ++i) out[b * kBlock + i] = T(values[i] * by);
  }
}

// The same for a payload [C, R] of blocks along R, into [R, C]: a strip of columns at a time.
template <class Element, std::int64_t kBlock, class T, class Factor>
void multiply_transposed_blocks(const std::uint8_t* payload, const std::uint8_t* scales, T* out,
                                const MatrixBatch& shape, const Factor& factor) {
  constexpr std::int64_t kStrip = 64;
  const std::int64_t row_blocks = shape.rows / kBlock, strips = (shape.columns + kStrip - 1) / kStrip;
#pragma omp parallel for collapse(3) schedule(static) if (shape.numel() >= kParallelElements)
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t s = 0; s < strips; ++s) {
      for (std::int64_t k = 0; k < row_blocks; ++k) {
        const std::int64_t first = s * kStrip, width = std::min(kStrip, shape.columns - first);
        float values[kStrip][kBlock];
        for (std::int64_t c = 0; c < width; ++c) {
          const std::int64_t block = (b * shape.columns + first + c) * row_blocks + k;
          const float by = factor(scales[block]);
          decode_run<Element>(payload, block * kBlock, kBlock, values[c]);
          for (std::int64_t i = 0; i < kBlock; ++i) values[c][i] *= by;
        }
        T* to = out + (b * shape.rows + k * kBlock) * shape.columns + first;
        for (std::int64_t i = 0; i < kBlock; ++i)
          for (std::int64_t c = 0; c < width; ++c) to[i * shape.columns + c] = T(values[c][i]);
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
    dispatch_quantize<E4m3, E5m2>("dequantize", args.out.dtype(), format.element, [&]<class T, class Element>() {
      divide_by_scales<Element>(static_cast<const std::uint8_t*>(x.payload().raw_data()), x.scales().data<float>(),
                                args.out.data<T>(), MatrixBatch(x.shape()), format.granularity);
    });
  } else if (format.scale_dtype == DType::f8_e8m0) {
    // Every product is exact in f32, down to 2^-149, so that rounding it once to bf16 is as good as a bf16 product.
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
