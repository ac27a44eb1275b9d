#pragma once
// What a training loop asks of an optimizer. It owns its state; gradients belong to the parameters.

#include <string>
#include <string_view>
#include <vector>

#include "nn/optim/parameter_state.h"
#include "nn/parameter.h"

namespace quench::nn {

class Optimizer {
 public:
  // Keeps pointers to the parameters that are not frozen.
  explicit Optimizer(const std::vector<Parameter*>& parameters);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates some of parameters() with their gradients multiplied by grad_scale (f32 [1] on the device; non-finite:
  // nothing changes). Parameters whose gradient got no contribution are treated as having a zero gradient. `step` is
  // 1-based. The parts of an update may come in any order, and leave the bits of one call.
  virtual void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) = 0;
  void step(double lr, std::int64_t step, const Tensor& grad_scale) {
    this->step(lr, step, grad_scale, {0, parameters_.size()});
  }
  // Copies the parameters' values into their f32 master weights (after loading a checkpoint without state).
  virtual void refresh_master();

  // State tensors for checkpoints, "optimizer.<what>.<parameter>", with the parameter that they belong to.
  struct StateTensor {
    std::string name;
    Tensor tensor;
    const Parameter* parameter;
  };
  [[nodiscard]] virtual std::vector<StateTensor> state();
  // What a parameter's f32 master weights are called among them.
  [[nodiscard]] static std::string master_name(const Parameter& parameter) { return state_name(kMaster, parameter); }
  // Where the tensors of state() are kept, by parameter, for code that offloads them. They must be back, unchanged,
  // when the parameter is updated, and for state() and refresh_master().
  [[nodiscard]] virtual std::vector<ParameterState> parameter_states();

  // Squared L2 norm of all gradients, f64 [1] on the device.
  void squared_grad_norm(const Tensor& result) const;
  // Forgets the gradients and gives their memory back.
  void zero_grad() { zero_grad({0, parameters_.size()}); }
  void zero_grad(ParameterRange part);
  [[nodiscard]] const std::vector<Parameter*>& parameters() const noexcept { return parameters_; }

 protected:
  static constexpr std::string_view kMaster = "master";
  // A tensor that is kept for a parameter: "exp_avg", kMaster, ... Undefined: not kept.
  struct KeptTensor {
    std::string_view what;
    Tensor* tensor;
  };
  // What is kept for parameters()[index], in the order of state(). Axis 0 of each tensor is that of the parameter.
  [[nodiscard]] virtual std::vector<KeptTensor> kept(std::size_t index) = 0;
  // The gradient of a parameter, zeros where it got no contribution.
  [[nodiscard]] Tensor gradient_of(std::size_t index) const;

 private:
  [[nodiscard]] static std::string state_name(std::string_view what, const Parameter& parameter);
  [[nodiscard]] std::vector<KeptTensor> defined(std::size_t index);

  std::vector<Parameter*> parameters_;
};

}  // namespace quench::nn
