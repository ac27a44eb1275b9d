#include "export/schemes/quantized_weight.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/number/e8m0.h"
#include "core/number/float6.h"
#include "core/ops/elementwise.h"
#include "core/ops/packed_linear.h"

namespace quench {
namespace {

// Even element in the low nibble.
Tensor pack_nibble_codes(const Tensor& codes) {
  const Tensor packed = Tensor::empty(codes.shape(), DType::i4);
  const auto* in = codes.data<std::int8_t>();
  auto* out = static_cast<std::uint8_t*>(packed.raw_data());
  const std::int64_t pairs = codes.numel() / 2;
#pragma omp parallel for schedule(static) if (pairs > 65536)
  for (std::int64_t i = 0; i < pairs; ++i)
    out[i] = pack_nibbles(static_cast<std::uint8_t>(in[2 * i]), static_cast<std::uint8_t>(in[2 * i + 1]));
  return packed;
}

// Exact in float8.
Tensor as_float8(const Tensor& codes, ElementFormat element) {
  std::uint8_t table[256] = {};
  for (int code = 0; code < 64; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    table[code] = E4m3::encode(element == ElementFormat::e2m3 ? E2m3::decode(byte) : E3m2::decode(byte));
  }
  const Tensor result = Tensor::empty(codes.shape(), DType::f8_e4m3);
  const auto* in = static_cast<const std::uint8_t*>(codes.raw_data());
  auto* out = static_cast<std::uint8_t*>(result.raw_data());
  for (std::int64_t i = 0; i < codes.numel(); ++i) out[i] = table[in[i] & 63];
  return result;
}

bool has_nan_code(const Tensor& codes) {
  const auto* in = static_cast<const std::uint8_t*>(codes.raw_data());
  return std::any_of(in, in + codes.numel(), [](std::uint8_t code) { return (code & 0x7F) == E4m3::kNanCode; });
}

Tensor packed_codes(const QuantizedWeight& weight) {
  if (!weight.scheme.element) return weight.scheme.bits <= 4 ? pack_nibble_codes(weight.codes) : weight.codes;
  switch (*weight.scheme.element) {
    case ElementFormat::e2m3:
    case ElementFormat::e3m2: return as_float8(weight.codes, *weight.scheme.element);
    default: return weight.codes;
  }
}

float value_at(const Tensor& tensor, std::int64_t i) {
  switch (tensor.dtype()) {
    case DType::f32: return tensor.data<float>()[i];
    case DType::bf16: return float(tensor.data<bfloat16>()[i]);
    case DType::f16: return float(tensor.data<float16>()[i]);
    case DType::f8_e8m0: return decode_e8m0(static_cast<const std::uint8_t*>(tensor.raw_data())[i]);
    case DType::f8_e4m3: return E4m3::decode(static_cast<const std::uint8_t*>(tensor.raw_data())[i]);
    default: QUENCH_FAIL(ErrorCode::unsupported, "scales of dtype {}", to_string(tensor.dtype()));
  }
}

struct ScalePlace {
  const OperandScheme& scheme;
  std::int64_t groups;  // per row
  [[nodiscard]] std::int64_t at(std::int64_t row, std::int64_t group) const {
    switch (scheme.sharing) {
      case ScaleSharing::tensor: return 0;
      case ScaleSharing::row: return row;
      case ScaleSharing::group: return row * groups + group;
      case ScaleSharing::block: return row / scheme.group_size * groups + group;
    }
    return 0;
  }
};

}  // namespace

std::size_t QuantizedWeight::nbytes() const {
  if (scheme.blocks) return codes.nbytes();
  const std::size_t elements = static_cast<std::size_t>(shape.numel());
  std::size_t bytes = (elements * static_cast<std::size_t>(scheme.bits) + 7) / 8 + scales.nbytes();
  if (zero_points.defined()) bytes += (static_cast<std::size_t>(zero_points.numel() * scheme.bits) + 7) / 8;
  return bytes + (global_scale.defined() ? global_scale.nbytes() : 0);
}

PackedMatrix pack(const QuantizedWeight& weight, std::string_view source) {
  const OperandScheme& scheme = weight.scheme;
  const std::int64_t rows = weight.shape[0], columns = weight.shape[1];
  if (scheme.blocks) return pack_blocks(weight.codes, *scheme.blocks, columns, source);
  const std::int64_t group = scheme.group_size > 0 ? scheme.group_size : columns + columns % 2;
  const std::int64_t groups = (columns + group - 1) / group;
  const MemoryScope scope(MemoryCategory::parameters);
  const Tensor codes = packed_codes(weight);
  QUENCH_CHECK_AS(ErrorCode::corrupt, codes.dtype() != DType::f8_e4m3 || !has_nan_code(codes),
                  "{}: the weight has NaN values", source);
  const float global = weight.global_scale.defined() ? weight.global_scale.data<float>()[0] : 1.0f;
  const ScalePlace place{scheme, groups};
  // exact in bf16
  const bool exact_in_f32_only = scheme.scale == ScaleForm::e4m3_two_level;
  const DType stored = exact_in_f32_only                         ? DType::f32
                       : weight.scales.dtype() == DType::f8_e8m0 ? DType::bf16
                                                                 : weight.scales.dtype();
  const Tensor wide = Tensor::empty({rows, groups}, DType::f32);
  Tensor offsets;
  if (weight.zero_points.defined()) offsets = Tensor::empty({rows, groups}, DType::f32);
  bool finite = std::isfinite(global);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t at = place.at(row, g);
      const float scale = value_at(weight.scales, at) * global;
      wide.data<float>()[row * groups + g] = scale;
      finite = finite && std::isfinite(scale);
      if (!offsets.defined()) continue;
      const float zero = value_at(weight.zero_points, at);
      finite = finite && std::isfinite(zero);
      offsets.data<float>()[row * groups + g] = scheme.mapping == IntMapping::float_zero_point ? zero : -zero * scale;
    }
  QUENCH_CHECK_AS(ErrorCode::corrupt, finite, "{}: a scale or zero point of the weight is not finite", source);
  Tensor scales = wide;
  if (stored != DType::f32) {
    scales = Tensor::empty(wide.shape(), stored);
    cast({wide, scales});
  }
  Tensor globals;
  if (exact_in_f32_only && weight.global_scale.defined()) {
    globals = Tensor::empty({rows, 1}, DType::f32);
    std::fill_n(globals.data<float>(), rows, global);
  }
  return {group, codes, scales, offsets, globals};
}

double signal_to_noise(const Tensor& weight, const PackedMatrix& packed) {
  const MemoryScope scope(MemoryCategory::workspace);
  double signal = 0, noise = 0;
  constexpr std::int64_t kRows = 256;
  const std::int64_t columns = packed.columns();
  const Tensor values = Tensor::empty({std::min(kRows, packed.rows()), columns}, DType::f32);
  for (std::int64_t row = 0; row < packed.rows(); row += kRows) {
    const std::int64_t count = std::min(kRows, packed.rows() - row);
    unpack({packed.narrow_rows(row, count), values.narrow(0, 0, count)});
    const float* v = values.data<float>();
    dispatch<float, bfloat16>(weight.dtype(), "signal_to_noise", [&]<class T>() {
      const T* w = weight.data<T>() + row * columns;
#pragma omp parallel for schedule(static) reduction(+ : signal, noise)
      for (std::int64_t i = 0; i < count * columns; ++i) {
        const double x = static_cast<float>(w[i]), difference = x - v[i];
        signal += x * x;
        noise += difference * difference;
      }
    });
  }
  if (noise == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal / noise);
}

}  // namespace quench
