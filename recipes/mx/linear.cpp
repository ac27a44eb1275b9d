#include "recipes/mx/linear.h"

#include <array>

#include "core/ops/block_scaled_gemm.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "core/ops/quantize/quantize.h"
#include "recipes/pad_and_bias.h"

namespace quench::recipes {
namespace {

using autograd::GradientTarget;
using autograd::Saved;
using autograd::Tape;
using autograd::Variable;
using autograd::Weight;

std::int64_t mx_padded(std::int64_t n) {
  return (n + kMxBlockSize - 1) / kMxBlockSize * kMxBlockSize;
}

float mx_beta(const GradientTarget& into) {
  return into.accumulate ? 1.0f : 0.0f;
}

class MxLinear final : public nn::LinearKernel {
 public:
  MxLinear(MxScaleMode mode, EmulatedGemms gemms) : mode_(mode), gemms_(gemms) {}
  [[nodiscard]] std::string_view name() const override { return "mxfp8"; }

 private:
  // x [R,C] for a GEMM that reduces over C: [R, C padded].
  [[nodiscard]] static QuantTensor along_columns(const Tensor& x, MxScaleMode mode) {
    return quantize_mx(zero_padded(x, x.size(0), mx_padded(x.size(1))), {.mode = mode});
  }
  // x [R,C] for a GEMM that reduces over R: [C, R padded].
  [[nodiscard]] static QuantTensor along_rows(const Tensor& x, MxScaleMode mode) {
    return quantize_mx(zero_padded(x, mx_padded(x.size(0)), x.size(1)),
                       {.mode = mode, .orientation = Orientation::transposed})
        .transposed_view();
  }

  [[nodiscard]] nn::LinearOutput do_run(const nn::LinearCall& call, const nn::Parameter& parameter,
                                        const Weight& bias) const override {
    const Variable& x = call.x;
    const Weight weight = parameter.weight();
    const Tensor in = x.value();
    QUENCH_CHECK(in.rank() == 2 && weight.shape().rank() == 2 && in.size(1) == weight.shape()[1],
                 "{} linear: x is {}, weight is {}; expected [M,K] and [N,K]", name(), in.describe(),
                 weight.describe());
    const MemoryScope scope(MemoryCategory::activations);
    Variable y(Tensor::empty({in.size(0), weight.shape()[0]}, in.dtype(), in.device()));
    multiply(in, weight.acquire().value(), bias.acquire().value(), y.value());
    Tape::record(name(), {x, weight, bias}, std::array{&y}, [&] {
      return [mode = mode_, gemms = gemms_, saved_x = weight.requires_grad() ? Saved(x) : Saved(), weight,
              dx = x.gradient(), dw = weight.gradient(), db = bias.gradient(), dy_of = y.gradient()] {
        const MemoryScope workspace(MemoryCategory::workspace);
        const Tensor dy = dy_of->value();
        if (dw) weight_gradient(mode, gemms.wgrad, dy, saved_x, dw);
        if (db) {
          const GradientTarget into = db->target();
          column_sum({.x = dy, .out = into.tensor, .accumulate = into.accumulate});
        }
        if (!dx) return;
        const Weight::Acquired use = weight.acquire();
        const GradientTarget into = dx->target();
        if (gemms.dgrad)
          block_scaled_gemm({.a = along_columns(dy, mode),
                             .b = along_rows(use.value(), mode),
                             .c = into.tensor,
                             .beta = mx_beta(into)});
        else
          gemm({.a = dy, .b = use.value(), .c = into.tensor, .beta = mx_beta(into), .bias = {}});
      };
    });
    return {y};
  }

  void multiply(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) const {
    const MemoryScope workspace(MemoryCategory::workspace);
    if (!gemms_.forward) return gemm({.a = x, .b = w, .c = y, .transpose_b = true, .bias = bias});
    block_scaled_gemm({.a = along_columns(x, mode_), .b = along_columns(w, mode_), .c = y});
    if (bias.defined()) add_bias(y, bias);
  }

  static void weight_gradient(MxScaleMode mode, bool quantized, const Tensor& dy, const Saved& saved_x,
                              const std::shared_ptr<autograd::Gradient>& dw) {
    dw->begin_use();
    const QuantTensor left = quantized ? along_rows(dy, mode) : QuantTensor();
    const auto finish = [dw, mode, quantized, left, dy = quantized ? Tensor() : dy](const Tensor& x) {
      const MemoryScope workspace(MemoryCategory::workspace);
      const GradientTarget into = dw->target();
      if (quantized)
        block_scaled_gemm({.a = left, .b = along_rows(x, mode), .c = into.tensor, .beta = mx_beta(into)});
      else
        gemm({.a = dy, .b = x, .c = into.tensor, .transpose_a = true, .beta = mx_beta(into), .bias = {}});
      dw->end_use();
    };
    if (!saved_x.defer(finish)) finish(saved_x.get());
  }

  MxScaleMode mode_;
  EmulatedGemms gemms_;
};

}  // namespace

std::shared_ptr<const nn::LinearKernel> mx_linear(MxScaleMode mode, EmulatedGemms gemms) {
  return std::make_shared<MxLinear>(mode, gemms);
}

}  // namespace quench::recipes
