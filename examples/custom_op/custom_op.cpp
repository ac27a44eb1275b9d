// An op with forward, backward, kernels for CPU and GPU, and a gradient check.
#include "squared_relu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

using namespace quench;

constinit KernelSlot<SquaredReluArgs> squared_relu_slot("squared_relu");
constinit KernelSlot<SquaredReluBackwardArgs> squared_relu_backward_slot("squared_relu_backward");

namespace {

void forward_cpu(const SquaredReluArgs& a) {
  for (std::int64_t i = 0; i < a.x.numel(); ++i) {
    const float positive = std::max(a.x.data<float>()[i], 0.0f);
    a.y.data<float>()[i] = positive * positive;
  }
}

void backward_cpu(const SquaredReluBackwardArgs& a) {
  for (std::int64_t i = 0; i < a.x.numel(); ++i)
    a.dx.data<float>()[i] = a.dy.data<float>()[i] * 2 * std::max(a.x.data<float>()[i], 0.0f);
}

QUENCH_CPU_KERNEL(squared_relu_slot, forward_cpu);
QUENCH_CPU_KERNEL(squared_relu_backward_slot, backward_cpu);

// As torch.autograd.Function: the forward pass, and a closure for the backward pass. The outer lambda is called only
// where a tape records and x needs a gradient; it saves what the backward pass reads.
autograd::Variable squared_relu(const autograd::Variable& x) {
  const Tensor in = x.value();
  check_tensor("squared_relu", "x", in, in.shape(), DType::f32);
  check_contiguous("squared_relu", "x", in);
  autograd::Variable y(Tensor::empty_like(in));
  squared_relu_slot(in.device().type, {in, y.value()});
  autograd::Tape::record("squared_relu", {x}, std::array{&y}, [&] {
    return [saved = autograd::Saved(x), x_gradient = x.gradient(), y_gradient = y.gradient()] {
      const Tensor saved_x = saved.get(), dx = Tensor::empty_like(saved_x);
      squared_relu_backward_slot(saved_x.device().type, {saved_x, y_gradient->value(), dx});
      if (x_gradient) x_gradient->contribute(dx);
    };
  });
  return y;
}

// Largest difference of outputs and gradients between CPU and GPU.
float difference(const Tensor& x, const Tensor& dy) {
  const Tensor y = Tensor::empty_like(x), dx = Tensor::empty_like(x);
  squared_relu_slot(DeviceType::cpu, {x, y});
  squared_relu_backward_slot(DeviceType::cpu, {x, dy, dx});
  const Device gpu{DeviceType::cuda};
  const Tensor x_gpu = x.to(gpu), y_gpu = Tensor::empty_like(x_gpu), dx_gpu = Tensor::empty_like(x_gpu);
  squared_relu_slot(DeviceType::cuda, {x_gpu, y_gpu});
  squared_relu_backward_slot(DeviceType::cuda, {x_gpu, dy.to(gpu), dx_gpu});
  const Tensor y_back = y_gpu.to(Device{}), dx_back = dx_gpu.to(Device{});
  float worst = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i)
    worst = std::max({worst, std::abs(y.data<float>()[i] - y_back.data<float>()[i]),
                      std::abs(dx.data<float>()[i] - dx_back.data<float>()[i])});
  return worst;
}

}  // namespace

int main() {
  const Tensor x = Tensor::empty({64, 33}, DType::f32), dy = Tensor::empty({64, 33}, DType::f32);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = random_normal({/*seed=*/1, 0, 0}, std::uint64_t(i));
    dy.data<float>()[i] = random_normal({/*seed=*/2, 0, 0}, std::uint64_t(i));
  }
  const autograd::GradcheckResult check =
      autograd::gradcheck([](const auto& inputs) { return squared_relu(inputs[0]); }, {x});
  std::printf("gradient check: %s, largest error %.1e\n", check.ok ? "passed" : "FAILED", check.worst);
  if (!check.ok) std::printf("%s\n", check.failure.c_str());
  if (!squared_relu_slot.filled(DeviceType::cuda)) {
    std::printf("CUDA: not compiled\n");
    return check.ok ? 0 : 1;
  }
  if (!has_backend(DeviceType::cuda) || backend(DeviceType::cuda).device_count() == 0) {
    std::printf("CUDA: no GPU\n");
    return check.ok ? 0 : 1;
  }
  const float worst = difference(x, dy);
  std::printf("CUDA: largest difference from CPU %.1e\n", double(worst));
  return check.ok && worst < 1e-5f ? 0 : 1;
}
