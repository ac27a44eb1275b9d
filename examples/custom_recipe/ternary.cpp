// A recipe as a plug-in: weights of three values, {-s, 0, s} with s = mean |w| of a row (BitNet b1.58, Ma et al. 2024,
// arXiv:2402.17764), trained with straight-through gradients.
#include <quench/plugin.h>

#include <algorithm>
#include <array>
#include <cmath>

QUENCH_PLUGIN("ternary", "1.0")

namespace {

using namespace quench;

struct TernaryArgs {
  Tensor w;  // [out,in]; f32 or bf16, contiguous
  Tensor q;  // out
};

constinit KernelSlot<TernaryArgs> ternary_slot("ternary");

void ternary_cpu(const TernaryArgs& args) {
  const std::int64_t rows = args.w.size(0), width = args.w.size(1);
  dispatch<float, bfloat16>(args.w.dtype(), "ternary", [&]<class T>() {
    for (std::int64_t row = 0; row < rows; ++row) {
      const T* w = args.w.data<T>() + row * width;
      T* q = args.q.data<T>() + row * width;
      float scale = 0;
      for (std::int64_t i = 0; i < width; ++i) scale += std::abs(static_cast<float>(w[i]));
      scale = std::max(scale / static_cast<float>(width), 1e-8f);
      for (std::int64_t i = 0; i < width; ++i)
        q[i] = T(scale * std::clamp(std::nearbyint(static_cast<float>(w[i]) / scale), -1.0f, 1.0f));
    }
  });
}
QUENCH_CPU_KERNEL(ternary_slot, ternary_cpu);

Tensor ternary(const nn::Weight& weight) {
  const auto w = weight.acquire();  // held, so that sharded weights stay gathered
  const Tensor q = Tensor::empty_like(w.value());
  ternary_slot(q.device().type, {w.value(), q});
  return q;
}

// y = x q(W)^T + bias. dx = dy q(W), dW = dy^T x as if q(W) were W.
class TernaryLinear final : public nn::LinearKernel {
 public:
  std::string_view name() const override { return "ternary"; }

 private:
  nn::LinearOutput do_run(const nn::LinearCall& call, const nn::Parameter& parameter,
                          const nn::Weight& bias) const override {
    const autograd::Variable& x = call.x;
    const nn::Weight w = parameter.weight();
    const Tensor in = x.value();
    autograd::Variable y(Tensor::empty({in.size(0), w.shape()[0]}, in.dtype(), in.device()));
    const auto held_bias = bias.acquire();  // its value is undefined without a bias
    gemm({.a = in, .b = ternary(w), .c = y.value(), .transpose_b = true, .bias = held_bias.value()});
    autograd::Tape::record("ternary_linear", {x, w, bias}, std::array{&y}, [&] {
      // Gradients are null where none is needed. target(): the tensor to write, and whether it holds a sum to add to.
      return [w, saved = autograd::Saved(x), x_gradient = x.gradient(), w_gradient = w.gradient(),
              bias_gradient = bias.gradient(), y_gradient = y.gradient()] {
        const Tensor dy = y_gradient->value();
        if (x_gradient) {
          const auto [into, accumulate] = x_gradient->target();
          gemm({.a = dy, .b = ternary(w), .c = into, .beta = accumulate ? 1.0f : 0.0f});
        }
        if (w_gradient) {
          const Tensor saved_x = saved.get();
          const auto [into, accumulate] = w_gradient->target();
          gemm({.a = dy, .b = saved_x, .c = into, .transpose_a = true, .beta = accumulate ? 1.0f : 0.0f});
        }
        if (bias_gradient) {
          const auto [into, accumulate] = bias_gradient->target();
          column_sum({.x = dy, .out = into, .accumulate = accumulate});
        }
      };
    });
    return {.y = y};
  }
};

// Called for each linear layer; a layer without a kernel stays in high precision, for the reason given.
recipes::LinearPlan plan(const nn::LinearInfo& layer, const recipes::RecipeOptions& options) {
  if (options.target.value_or(layer.device).type == DeviceType::cuda)
    return {nullptr, "no CUDA kernel (see custom_op)"};
  return {std::make_shared<TernaryLinear>(), {}};
}

const Registered<recipes::Recipe> kTernary{{
    .name = "ternary",
    .summary = "trains weights of three values, a scale for each row",
    .plan = plan,
    .tolerances = {.output_relative_l2 = 0.6, .gradient_relative_l2 = 0.6, .loss_relative = 0.3},
}};

}  // namespace
