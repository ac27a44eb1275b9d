// A two-layer network learns which points of a square lie in a ring.
#include <quench/nn.h>

#include <cstdio>

using namespace quench;

struct Mlp : nn::Module {
  nn::Linear gate_up{2, 64, {.bias = true, .init_std = 1.0f}};  // gate and up projections of SwiGLU, 32 units each
  nn::Linear head{32, 2, {.init_std = 0.2f}};                   // hidden units to the logits of 2 classes
  Mlp() {
    add_module("gate_up", gate_up);
    add_module("head", head);
    assign_names();
    for (nn::Parameter* parameter : parameters()) nn::initialize_parameter(*parameter, /*seed=*/1);
  }
};

int main() {
  constexpr std::int64_t kPoints = 512;
  Mlp model;
  nn::AdamW optimizer(model.parameters(), {.weight_decay = 0.0});
  const Tensor grad_scale = Tensor::from_values<float>({1}, std::vector<float>{1.0f});  // for clipping; 1: none
  for (std::int64_t step = 1; step <= 500; ++step) {
    const Tensor points = Tensor::empty({kPoints, 2}, DType::f32), labels = Tensor::empty({kPoints}, DType::i32);
    for (std::int64_t i = 0; i < kPoints; ++i) {
      float* p = points.data<float>() + 2 * i;
      for (std::uint64_t axis : {0, 1})  // uniform in [-1, 1): seed 7, one stream for each step
        p[axis] = 2 * to_uniform(random_word({7, 0, std::uint64_t(step)}, std::uint64_t(2 * i) + axis)) - 1;
      const float r = p[0] * p[0] + p[1] * p[1];
      labels.data<std::int32_t>()[i] = r > 0.2f && r < 0.7f;
    }
    autograd::Tape tape;
    const autograd::TapeScope scope(tape);  // operations on variables are recorded from here on
    const autograd::Variable hidden = autograd::swiglu(model.gate_up.forward(autograd::Variable(points)));
    const autograd::Variable loss =  // head and cross-entropy in one, times 1/kPoints: the mean
        autograd::lm_head_loss(hidden, model.head.matrix(), labels, 1.0f / kPoints);
    const Tensor logits = model.head.forward(hidden.detach()).value();
    tape.backward(loss);
    optimizer.step(/*lr=*/1e-2, step, grad_scale);
    optimizer.zero_grad();
    int correct = 0;
    for (std::int64_t i = 0; i < kPoints; ++i)
      correct += (logits.data<float>()[2 * i + 1] > logits.data<float>()[2 * i]) == labels.data<std::int32_t>()[i];
    if (step % 100 == 0)
      std::printf("step %3d  loss %.4f  accuracy %.1f%%\n", int(step), loss.value().data<float>()[0],
                  100.0 * correct / kPoints);
  }
}
