#include "recipes/qat/fake_quantizer.h"

#include "core/ops/quantize/fake_quantize_float8.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/quantize/two_of_four.h"

namespace quench::recipes {

std::string FakeFormat::problem(std::int64_t rows, std::int64_t columns) const {
  if (sparsity)
    if (std::string reason = two_of_four_problem(*sparsity, rows, columns); !reason.empty()) return reason;
  const std::int64_t group = kind == Kind::integer ? integers.group_size
                             : kind == Kind::mx    ? std::int64_t{kMxBlockSize}
                             : kind == Kind::nvfp4 ? std::int64_t{kNvfp4BlockSize}
                                                   : 0;
  if (group == 0 || columns % group == 0) return {};
  return fmt::format("groups of {} do not divide its {} inputs", group, columns);
}

FakeQuantized fake_quantize(const Tensor& dense, const FakeFormat& format, bool with_mask) {
  const Tensor x = format.sparsity ? two_of_four(dense, *format.sparsity) : dense;
  using Kind = FakeFormat::Kind;
  switch (format.kind) {
    case Kind::none: break;
    case Kind::integer: {
      FakeQuantized made{Tensor::empty_like(x), {}};
      if (with_mask) made.mask = Tensor::empty(range_mask_shape(x.shape()), DType::u8, x.device());
      fake_quantize_int(
          {.x = x, .out = made.values, .mask = made.mask, .scales = {}, .zero_points = {}, .options = format.integers});
      return made;
    }
    case Kind::float8: {
      FakeQuantized made{Tensor::empty_like(x), {}};
      fake_quantize_float8({.x = x, .amax = amax(x, Granularity::row), .out = made.values, .scale_dtype = x.dtype()});
      return made;
    }
    case Kind::mx: return {dequantize(quantize_mx(x, {.element = format.element}), x.dtype()), {}};
    case Kind::nvfp4:
      return {dequantize(quantize_nvfp4(x, nvfp4_global_scale(amax(x, Granularity::tensor))), x.dtype()), {}};
  }
  return {x, {}};
}

void stop_gradient(const Tensor& dx, const Tensor& mask) {
  if (mask.defined()) zero_masked({dx, mask});
}

}  // namespace quench::recipes
