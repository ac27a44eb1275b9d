// MX casts: rowwise, or columnwise and transposed.

#include "core/cpu/quantize/quantize_common.h"

namespace quench {
namespace {

template <class Element>
inline constexpr std::int64_t kBlockBytes = Element::kBits == 4 ? kMxBlockSize / 2 : kMxBlockSize;

template <class Element>
inline void store_block(const std::uint8_t* codes, std::uint8_t* out) {
  if constexpr (Element::kBits == 4)
    pack_codes(codes, kMxBlockSize, out);
  else
    std::memcpy(out, codes, kMxBlockSize);
}

// Scales of many blocks at once, off the critical path.
template <class Element, class T>
void cast_group(const T* x, std::uint8_t* out, std::uint8_t* scales, std::int64_t blocks, MxScaleMode mode) {
  float amax[kBlocksAtOnce];
  for (std::int64_t b = 0; b < blocks; ++b)
    amax[b] = magnitude_value(max_magnitude(x + b * kMxBlockSize, kMxBlockSize));
  for (std::int64_t b = 0; b < blocks; ++b) scales[b] = mx_scale<Element>(amax[b], mode);
  for (std::int64_t b = 0; b < blocks; ++b) {
    const T* from = x + b * kMxBlockSize;
    const float reciprocal = e8m0_reciprocal(scales[b]);
    std::uint8_t codes[kMxBlockSize];
    for (int i = 0; i < kMxBlockSize; ++i) codes[i] = Element::encode(static_cast<float>(from[i]) * reciprocal);
    if (scales[b] == kE8m0Nan) std::memset(codes, Element::kNanCode, kMxBlockSize);
    store_block<Element>(codes, out + b * kBlockBytes<Element>);
  }
}

template <class Element, class T>
void cast_rows(const T* x, std::uint8_t* out, std::uint8_t* scales, std::int64_t blocks, MxScaleMode mode) {
#pragma omp parallel for schedule(static) if (blocks * kMxBlockSize >= kParallelElements)
  for (std::int64_t b = 0; b < blocks; b += kBlocksAtOnce)
    cast_group<Element>(x + b * kMxBlockSize, out + b * kBlockBytes<Element>, scales + b,
                        std::min(kBlocksAtOnce, blocks - b), mode);
}

// Up to kStripColumns columns by 32 rows: column scales, then the transpose.
template <class Element, class T>
void cast_strip(const T* x, std::int64_t stride, std::int64_t width, std::uint8_t* out, std::uint8_t* scales,
                std::int64_t blocks_per_column, MxScaleMode mode) {
  Magnitude<T> most[kStripColumns] = {};
  for (int r = 0; r < kMxBlockSize; ++r)
    for (std::int64_t c = 0; c < width; ++c) most[c] = std::max(most[c], magnitude(x[r * stride + c]));
  std::uint8_t scale[kStripColumns];
  float reciprocal[kStripColumns];
  for (std::int64_t c = 0; c < width; ++c) {
    scale[c] = mx_scale<Element>(magnitude_value(most[c]), mode);
    reciprocal[c] = e8m0_reciprocal(scale[c]);
  }
  std::uint8_t codes[kMxBlockSize][kStripColumns] = {}, turned[kStripColumns][kMxBlockSize];
  for (int r = 0; r < kMxBlockSize; ++r)
    for (std::int64_t c = 0; c < width; ++c)
      codes[r][c] = Element::encode(static_cast<float>(x[r * stride + c]) * reciprocal[c]);
  transpose_bytes(codes, turned);
  for (std::int64_t c = 0; c < width; ++c) {
    if (scale[c] == kE8m0Nan) std::memset(turned[c], Element::kNanCode, kMxBlockSize);
    store_block<Element>(turned[c], out + c * blocks_per_column * kBlockBytes<Element>);
    scales[c * blocks_per_column] = scale[c];
  }
}

template <class Element, class T>
void cast_columns(const T* x, std::uint8_t* out, std::uint8_t* scales, const MatrixBatch& shape, MxScaleMode mode) {
  const std::int64_t row_blocks = shape.rows / kMxBlockSize,
                     strips = (shape.columns + kStripColumns - 1) / kStripColumns;
#pragma omp parallel for collapse(3) schedule(static) if (shape.numel() >= kParallelElements)
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t s = 0; s < strips; ++s) {
      for (std::int64_t k = 0; k < row_blocks; ++k) {
        const std::int64_t first = s * kStripColumns;
        const std::int64_t block = (b * shape.columns + first) * row_blocks + k;
        cast_strip<Element>(x + (b * shape.rows + k * kMxBlockSize) * shape.columns + first, shape.columns,
                            std::min(kStripColumns, shape.columns - first), out + block * kBlockBytes<Element>,
                            scales + block, row_blocks, mode);
      }
    }
  }
}

void mx_cast_cpu(const MxCastArgs& args) {
  const QuantFormat& format = args.out.format();
  const MatrixBatch shape(args.x.shape());
  auto* out = static_cast<std::uint8_t*>(args.out.payload().raw_data());
  auto* scales = static_cast<std::uint8_t*>(args.out.scales().raw_data());
  dispatch_quantize<E4m3, E5m2, E2m3, E3m2, E2m1>(
      "mx_cast", args.x.dtype(), format.element, [&]<class T, class Element>() {
        const T* x = args.x.data<T>();
        if (format.orientation == Orientation::natural)
          cast_rows<Element>(x, out, scales, shape.numel() / kMxBlockSize, args.mode);
        else
          cast_columns<Element>(x, out, scales, shape, args.mode);
      });
}

QUENCH_CPU_KERNEL(mx_cast_slot, mx_cast_cpu);

}  // namespace
}  // namespace quench
