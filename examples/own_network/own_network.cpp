// A network of one's own, of plain functions and no custom op, learns which of two spirals a point belongs to.
#include <quench/nn.h>

#include <cmath>
#include <cstdio>

using namespace quench;
using namespace quench::autograd;  // matmul, softmax, ...: functions of variables

struct Network : nn::Module {
  nn::Parameter in = weight(6, 1.0f), inner = weight(32, 0.2f), out = weight(65, 0.1f, 2);
  Network() {
    add_parameter("in", in);
    add_parameter("inner", inner);
    add_parameter("out", out);
    assign_names();
    for (nn::Parameter* parameter : parameters()) nn::initialize_parameter(*parameter, /*seed=*/1);
  }
  // Probabilities [N,2] of the spirals for points [N,3]: x, y and 1, which takes the place of a bias.
  [[nodiscard]] Variable forward(const Variable& points) const {
    const Variable x = slice(points, /*axis=*/1, 0, 1), y = slice(points, 1, 1, 1), one = slice(points, 1, 2, 1);
    const Variable features = concat({points, mul(x, x), mul(y, y), mul(x, y)}, 1);
    const Variable first = gelu(matmul(features, in.variable)), second = gelu(matmul(first, inner.variable));
    return softmax(matmul(concat({first, second, one}, 1), out.variable));
  }
  static nn::Parameter weight(std::int64_t rows, float std, std::int64_t columns = 32) {
    return nn::make_parameter({rows, columns}, {}, nn::Initializer::normal, std);
  }
};

// Point `i` of spiral `spiral`, one and a half turns from the center to the edge of the square [-1, 1].
void put_point(float* point, int spiral, float i) {
  const float radius = 0.1f + 0.85f * i, angle = 9.4f * i + 3.1416f * float(spiral);
  point[0] = radius * std::cos(angle);
  point[1] = radius * std::sin(angle);
  point[2] = 1;
}

int main() {
  constexpr std::int64_t kPoints = 256;
  const Tensor points = Tensor::empty({kPoints, 3}, DType::f32), wanted = Tensor::zeros({kPoints, 2}, DType::f32);
  for (std::int64_t i = 0; i < kPoints; ++i) {
    put_point(points.data<float>() + 3 * i, int(i % 2), float(i) / kPoints);
    wanted.data<float>()[2 * i + i % 2] = 1;
  }
  Network model;
  nn::AdamW optimizer(model.parameters(), {.weight_decay = 0.0});
  const Tensor grad_scale = Tensor::from_values<float>({1}, std::vector<float>{1.0f});  // for clipping; 1: none
  for (std::int64_t step = 1; step <= 300; ++step) {
    Tape tape;
    const TapeScope scope(tape);  // functions of variables are recorded from here on
    const Variable probabilities = model.forward(Variable(points));
    const Variable error = add(probabilities, scale(Variable(wanted), -1.0f));
    const Variable loss = mean(mul(error, error));
    tape.backward(loss);
    optimizer.step(/*lr=*/4e-3, step, grad_scale);
    optimizer.zero_grad();
    int correct = 0;
    for (std::int64_t i = 0; i < kPoints; ++i) correct += probabilities.value().data<float>()[2 * i + i % 2] > 0.5f;
    if (step % 60 == 0)
      std::printf("step %3d  loss %.4f  accuracy %.1f%%\n", int(step), loss.value().data<float>()[0],
                  100.0 * correct / kPoints);
  }
  constexpr int kRows = 24, kColumns = 48;  // the square: # where the network sees the second spiral
  const Tensor square = Tensor::empty({kRows * kColumns, 3}, DType::f32);
  for (int i = 0; i < kRows * kColumns; ++i) {
    square.data<float>()[3 * i] = 2.0f * float(i % kColumns) / kColumns - 1;
    square.data<float>()[3 * i + 1] = 1 - 2.0f * float(i / kColumns) / kRows;
    square.data<float>()[3 * i + 2] = 1;
  }
  const Tensor seen = model.forward(Variable(square)).value();
  for (int i = 0; i < kRows * kColumns; ++i)
    std::printf("%c%s", seen.data<float>()[2 * i + 1] > 0.5f ? '#' : '.', (i + 1) % kColumns == 0 ? "\n" : "");
}
