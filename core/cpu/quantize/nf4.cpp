#include "core/ops/quantize/nf4.h"

#include <cmath>
#include <limits>

#include "core/cpu/parallel.h"
#include "core/number/float8.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Codes and the amax of a block.
template <class T>
float encode_block(const T* x, std::uint8_t* codes) {
  constexpr int kBlock = Nf4::kBlockSize;
  float values[kBlock], most = 0.0f;
  bool finite = true;
  for (int i = 0; i < kBlock; ++i) {
    values[i] = static_cast<float>(x[i]);
    most = std::max(most, std::abs(values[i]));
    finite &= std::isfinite(values[i]);
  }
  const float divisor = most > 0.0f ? most : 1.0f;
  std::int32_t found[kBlock] = {};
  for (int i = 0; i < kBlock; ++i) values[i] /= divisor;
  for (std::uint8_t lower = 0; lower < 15; ++lower) {
    const float midpoint = Nf4::midpoint(lower);
    for (int i = 0; i < kBlock; ++i) found[i] += values[i] > midpoint ? 1 : 0;
  }
  for (int i = 0; i < kBlock; i += 2) codes[i / 2] = static_cast<std::uint8_t>(found[i] << 4 | found[i + 1]);
  return finite ? most : std::numeric_limits<float>::infinity();
}

void nf4_encode_cpu(const Nf4EncodeArgs& args) {
  constexpr std::int64_t kBlock = Nf4::kBlockSize;
  auto* codes = args.codes.data<std::uint8_t>();
  float* amax = args.amax.data<float>();
  dispatch<float, bfloat16>(args.x.dtype(), "nf4_encode", [&]<class T>() {
    const T* x = args.x.data<T>();
    parallel_ranges(args.amax.numel(), args.x.numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) amax[b] = encode_block(x + b * kBlock, codes + b * kBlock / 2);
    });
  });
}

struct BlockScales {
  const std::int8_t* scales;
  const float* factors;
  float mean;
  explicit BlockScales(const Nf4Tensor& x)
      : scales(x.scales.data<std::int8_t>()), factors(x.factors.data<float>()), mean(*x.mean.data<float>()) {}
  float operator[](std::int64_t block) const {
    return static_cast<float>(scales[block]) / factors[block / Nf4::kScaleBlockSize] + mean;
  }
};

void nf4_dequantize_cpu(const Nf4DequantizeArgs& args) {
  constexpr std::int64_t kBlock = Nf4::kBlockSize;
  const std::int64_t blocks = args.x.shape.numel() / kBlock;
  const auto* codes = args.x.codes.data<std::uint8_t>();
  const BlockScales scales(args.x);
  dispatch<float, bfloat16>(args.out.dtype(), "nf4_dequantize", [&]<class T>() {
    T* out = args.out.data<T>();
    parallel_ranges(blocks, args.out.numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        const float scale = scales[b];
        T values[16];
        for (std::uint8_t code = 0; code < 16; ++code) values[code] = T(Nf4::decode(code) * scale);
        for (std::int64_t i = b * kBlock; i < (b + 1) * kBlock; i += 2) {
          out[i] = values[codes[i / 2] >> 4];
          out[i + 1] = values[codes[i / 2] & 15];
        }
      }
    });
  });
}

// e4m3 codes of a block. kEach: `by` has a scale for each element, otherwise one.
template <bool kEach>
void cast_block(const std::uint8_t* codes, float scale, const float* by, std::uint8_t* out) {
  std::uint8_t of_code[16];
  if constexpr (!kEach)
    for (std::uint8_t code = 0; code < 16; ++code) of_code[code] = E4m3::encode(Nf4::decode(code) * scale * *by);
  for (int i = 0; i < Nf4::kBlockSize; ++i) {
    const auto code = static_cast<std::uint8_t>(i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15);
    if constexpr (kEach)
      out[i] = E4m3::encode(Nf4::decode(code) * scale * by[i]);
    else
      out[i] = of_code[code];
  }
}

void nf4_cast_natural(const Nf4CastArgs& args) {
  constexpr std::int64_t kBlock = Nf4::kBlockSize;
  const auto* codes = args.x.codes.data<std::uint8_t>();
  const float* by = args.out.scales().data<float>();
  const BlockScales scales(args.x);
  auto* out = static_cast<std::uint8_t*>(args.out.payload().raw_data());
  const bool by_row = args.out.format().granularity == Granularity::row;
  const std::int64_t blocks = args.x.scales.numel(), of_row = args.x.shape[1] / kBlock;
  parallel_ranges(blocks, args.x.shape.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b)
      cast_block<false>(codes + b * kBlock / 2, scales[b], by_row ? by + b / of_row : by, out + b * kBlock);
  });
}

// In strips of rows that fit the cache.
void nf4_cast_transposed(const Nf4CastArgs& args) {
  constexpr std::int64_t kBlock = Nf4::kBlockSize, kStrip = 64;
  const auto* codes = args.x.codes.data<std::uint8_t>();
  const float* by = args.out.scales().data<float>();
  const BlockScales scales(args.x);
  auto* out = static_cast<std::uint8_t*>(args.out.payload().raw_data());
  const bool by_column = args.out.format().granularity == Granularity::column;
  const std::int64_t rows = args.x.shape[0], of_row = args.x.shape[1] / kBlock;
  const std::int64_t strips = (rows + kStrip - 1) / kStrip;
  parallel_ranges(strips * of_row, args.x.shape.numel(), [&](std::int64_t begin, std::int64_t end) {
    std::uint8_t tile[kStrip][kBlock];
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t first = t / of_row * kStrip, column = t % of_row, count = std::min(kStrip, rows - first);
      for (std::int64_t r = 0; r < count; ++r) {
        const std::int64_t b = (first + r) * of_row + column;
        by_column ? cast_block<true>(codes + b * kBlock / 2, scales[b], by + column * kBlock, tile[r])
                  : cast_block<false>(codes + b * kBlock / 2, scales[b], by, tile[r]);
      }
      for (std::int64_t c = 0; c < kBlock; ++c)
        for (std::int64_t r = 0; r < count; ++r) out[(column * kBlock + c) * rows + first + r] = tile[r][c];
    }
  });
}

void nf4_cast_cpu(const Nf4CastArgs& args) {
  args.out.format().orientation == Orientation::natural ? nf4_cast_natural(args) : nf4_cast_transposed(args);
}

QUENCH_CPU_KERNEL(nf4_cast_slot, nf4_cast_cpu);
QUENCH_CPU_KERNEL(nf4_encode_slot, nf4_encode_cpu);
QUENCH_CPU_KERNEL(nf4_dequantize_slot, nf4_dequantize_cpu);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
