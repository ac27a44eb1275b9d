// Adding an op: contract, kernel and differentiable function, without an edit of any list.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "autograd/gradcheck.h"
#include "core/number/random.h"
#include "core/tensor/op_checks.h"
#include "tests/seams/added_op.h"

namespace quench::testing {

constinit KernelSlot<RegluArgs> reglu_slot("reglu");
constinit KernelSlot<RegluBackwardArgs> reglu_backward_slot("reglu_backward");

void reglu(const RegluArgs& args) {
  check_float_tensor("reglu", "gate_up", args.gate_up, 2);
  check_contiguous("reglu", "gate_up", args.gate_up);
  check_tensor("reglu", "out", args.out, {args.gate_up.size(0), args.gate_up.size(1) / 2}, args.gate_up.dtype());
  reglu_slot(args.out.device().type, args);
}

void reglu_backward(const RegluBackwardArgs& args) {
  check_tensor("reglu_backward", "dgate_up", args.dgate_up, args.gate_up.shape(), args.gate_up.dtype());
  check_tensor("reglu_backward", "dout", args.dout, {args.gate_up.size(0), args.gate_up.size(1) / 2},
               args.gate_up.dtype());
  reglu_backward_slot(args.dout.device().type, args);
}

autograd::Variable reglu(const autograd::Variable& gate_up) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor in = gate_up.value();
  autograd::Variable out(Tensor::empty({in.size(0), in.size(1) / 2}, in.dtype(), in.device()));
  reglu(RegluArgs{in, out.value()});
  autograd::Tape::record("reglu", {gate_up}, std::array{&out}, [&] {
    return [saved = autograd::Saved(gate_up), din = gate_up.gradient(), dout = out.gradient()] {
      const Tensor kept = saved.get(), dx = Tensor::empty_like(kept);
      reglu_backward({dout->value(), kept, dx});
      if (din) din->contribute(dx);
    };
  });
  return out;
}

namespace {

template <class T>
void forward(const RegluArgs& args) {
  const std::int64_t width = args.out.size(1);
  for (std::int64_t i = 0; i < args.out.numel(); ++i) {
    const T* gate = args.gate_up.data<T>() + i / width * 2 * width + i % width;
    args.out.data<T>()[i] = T(std::max(static_cast<float>(gate[0]), 0.0f) * static_cast<float>(gate[width]));
  }
}

template <class T>
void backward(const RegluBackwardArgs& args) {
  const std::int64_t width = args.dout.size(1);
  for (std::int64_t i = 0; i < args.dout.numel(); ++i) {
    const std::int64_t at = i / width * 2 * width + i % width;
    const T* gate = args.gate_up.data<T>() + at;
    T* dgate = args.dgate_up.data<T>() + at;
    const float d = static_cast<float>(args.dout.data<T>()[i]), g = static_cast<float>(gate[0]);
    dgate[0] = T(g > 0 ? d * static_cast<float>(gate[width]) : 0.0f);
    dgate[width] = T(d * std::max(g, 0.0f));
  }
}

void reglu_kernel(const RegluArgs& args) {
  dispatch<float, bfloat16>(args.out.dtype(), "reglu", [&]<class T>() { forward<T>(args); });
}
void reglu_backward_kernel(const RegluBackwardArgs& args) {
  dispatch<float, bfloat16>(args.dout.dtype(), "reglu_backward", [&]<class T>() { backward<T>(args); });
}

QUENCH_CPU_KERNEL(reglu_slot, reglu_kernel);
QUENCH_CPU_KERNEL(reglu_backward_slot, reglu_backward_kernel);

TEST(AddedOp, HasTheGradientOfItsForwardPass) {
  const Tensor in = Tensor::empty({5, 12}, DType::f32);
  for (std::int64_t i = 0; i < in.numel(); ++i) {
    const float x = random_normal({3, 1, 0}, static_cast<std::uint64_t>(i));
    in.data<float>()[i] = x + (x > 0 ? 0.1f : -0.1f);  // no kink within the step of a difference
  }
  const autograd::GradcheckResult result =
      autograd::gradcheck([](const auto& inputs) { return reglu(inputs[0]); }, {in});
  EXPECT_TRUE(result.ok) << result.failure;
}

TEST(AddedOp, RunsWhereItHasAKernelAndSaysWhereItHasNone) {
  const Tensor planned = Tensor::empty({2, 3}, DType::f32, Device{DeviceType::meta});
  EXPECT_NO_THROW(reglu({Tensor::empty({2, 6}, DType::f32, planned.device()), planned}));
  try {
    reglu_slot(DeviceType::cuda, {});
    FAIL() << "a kernel that nobody wrote has run";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("reglu"));
  }
  try {
    reglu({Tensor::zeros({2, 6}, DType::f32), Tensor::zeros({2, 6}, DType::f32)});
    FAIL() << "an output of another shape was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("reglu: out"));
  }
}

}  // namespace
}  // namespace quench::testing
