#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "core/number/random.h"

namespace quench::autograd {
namespace {

using Function = std::function<Variable(const std::vector<Variable>&)>;

std::vector<double> random_values(std::int64_t count, std::uint64_t seed, std::uint64_t stream) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(random_normal({seed, stream, 0}, i));
  return values;
}

double weighted_sum(const Tensor& tensor, const std::vector<double>& weights) {
  const float* x = tensor.data<float>();
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) sum += static_cast<double>(x[i]) * weights[i];
  return sum;
}

// L with input `moved` displaced by h along `direction`.
double evaluate(const Function& function, const std::vector<Tensor>& inputs, std::size_t moved,
                const std::vector<double>& direction, double h, const std::vector<double>& weights) {
  const NoGrad no_grad;
  std::vector<Variable> arguments;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor copy = inputs[i].clone();
    if (i == moved) {
      float* x = copy.data<float>();
      for (std::size_t j = 0; j < direction.size(); ++j)
        x[j] = static_cast<float>(static_cast<double>(x[j]) + h * direction[j]);
    }
    arguments.emplace_back(copy);
  }
  return weighted_sum(function(arguments).value(), weights);
}

}  // namespace

GradcheckResult gradcheck(const Function& function, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options) {
  std::vector<Variable> leaves;
  for (const Tensor& input : inputs) leaves.push_back(Variable::leaf(input.clone()));
  Tape tape(options.recompute);
  Variable output;
  {
    const TapeScope scope(tape);
    output = function(leaves);
  }
  const std::vector<double> weights = random_values(output.value().numel(), options.seed, 1);
  Tensor seed_gradient = Tensor::empty_like(output.value());
  std::ranges::transform(weights, seed_gradient.data<float>(), [](double w) { return static_cast<float>(w); });
  output.gradient()->contribute(seed_gradient);
  tape.backward();

  GradcheckResult result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor gradient = leaves[i].grad();
    if (!gradient.defined()) {
      result.ok = false;
      result.failure = fmt::format("input {} received no gradient", i);
      return result;
    }
    double norm = 0;
    for (const float g : std::span(gradient.data<float>(), static_cast<std::size_t>(gradient.numel())))
      norm += static_cast<double>(g) * static_cast<double>(g);
    norm = std::sqrt(norm);
    for (int d = 0; d < options.directions; ++d) {
      std::vector<double> direction =
          random_values(inputs[i].numel(), options.seed, 100 + i * 16 + static_cast<std::uint64_t>(d));
      double length = 0;
      for (const double x : direction) length += x * x;
      length = std::sqrt(std::max(length, 1e-30));
      for (double& x : direction) x *= std::sqrt(static_cast<double>(direction.size())) / length;
      // The gradient's direction first, as random ones can be nearly orthogonal to it.
      if (d == 0 && norm > 0)
        for (std::size_t j = 0; j < direction.size(); ++j)
          direction[j] =
              static_cast<double>(gradient.data<float>()[j]) / norm * std::sqrt(static_cast<double>(direction.size()));
      const double numeric = (evaluate(function, inputs, i, direction, options.step, weights) -
                              evaluate(function, inputs, i, direction, -options.step, weights)) /
                             (2 * options.step);
      const double analytic = weighted_sum(gradient, direction);
      const double error =
          std::abs(numeric - analytic) / std::max(norm * std::sqrt(static_cast<double>(direction.size())), 1e-6);
      result.worst = std::max(result.worst, error);
      if (!(error <= options.tolerance)) {
        result.ok = false;
        result.failure = fmt::format("input {}, direction {}: analytic {:.6g}, numeric {:.6g}, relative error {:.2g}",
                                     i, d, analytic, numeric, error);
        return result;
      }
    }
  }
  return result;
}

}  // namespace quench::autograd
