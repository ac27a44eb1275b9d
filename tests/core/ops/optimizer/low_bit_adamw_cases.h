#pragma once
// Tensors for the tests of AdamW with low-bit moments, on the CPU and on a GPU.

#include <string>

#include "core/ops/optimizer/low_bit_adamw.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {

inline constexpr MomentFormat kMomentFormats[] = {MomentFormat::int8, MomentFormat::int4, MomentFormat::fp8};

template <class Info>
std::string moment_format_name(const Info& info) {
  return info.param == MomentFormat::int8 ? "int8" : info.param == MomentFormat::int4 ? "int4" : "fp8";
}

struct LowBitCase {
  LowBitAdamWTensor tensor;

  LowBitCase() = default;
  // Random param and gradient, moments of zero.
  LowBitCase(Generator& random, const Shape& shape, MomentFormat format, DType param, DType grad, bool master) {
    const auto moment = [&] {
      return MomentCodes{Tensor::zeros({shape[0], format == MomentFormat::int4 ? shape[1] / 2 : shape[1]},
                                       format == MomentFormat::fp8 ? DType::f8_e4m3 : DType::u8),
                         Tensor::zeros({shape[0], shape[1] / moment_block(format)}, DType::f32)};
    };
    tensor.param = random.normal(shape, param);
    tensor.grad = random.normal(shape, grad);
    tensor.exp_avg = moment();
    tensor.exp_avg_sq = moment();
    tensor.weight_decay = 0.1;
    tensor.random_stream = 11;
    if (master) {
      tensor.master = Tensor::empty(shape, DType::f32);
      for (std::int64_t i = 0; i < shape.numel(); ++i) set_element(tensor.master, i, get_element(tensor.param, i));
    }
  }

  template <class Map>
  [[nodiscard]] LowBitCase map(const Map& of) const {
    LowBitCase result = *this;
    LowBitAdamWTensor& t = result.tensor;
    for (Tensor* x :
         {&t.param, &t.grad, &t.master, &t.exp_avg.codes, &t.exp_avg.scales, &t.exp_avg_sq.codes, &t.exp_avg_sq.scales})
      if (x->defined()) *x = of(*x);
    return result;
  }
  [[nodiscard]] LowBitCase copy() const {
    return map([](const Tensor& x) { return x.clone(); });
  }
  // Some rows, as a process holds them.
  [[nodiscard]] LowBitAdamWTensor rows(std::int64_t begin, std::int64_t count) const {
    LowBitAdamWTensor t = map([&](const Tensor& x) { return x.narrow(0, begin, count); }).tensor;
    t.element_offset = begin * tensor.param.size(1);
    return t;
  }
};

}  // namespace quench::testing
