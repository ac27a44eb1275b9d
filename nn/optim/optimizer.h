#pragma once
// What a training loop asks of an optimizer. It owns its state; gradients belong to the parameters.

#include <string>
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
  // Takes the parameters' values over into state that depends on them (after loading a checkpoint without state).
  virtual void refresh_master() = 0;

  // State tensors for checkpoints, "optimizer.<what>.<parameter>", with the parameter that they belong to.
  struct StateTensor {
    std::string name;
    Tensor tensor;
    const Parameter* parameter;
  };
  [[nodiscard]] virtual std::vector<StateTensor> state() const = 0;
  // What a parameter's f32 master weights are called among them.
  [[nodiscard]] static std::string master_name(const Parameter& parameter) {
    return "optimizer.master." + parameter.name;
  }
  // Where the tensors of state() are kept, by parameter, for an owner that moves them to and fro. They are needed, with
  // the values they had, where the parameter is updated, by state() and by refresh_master().
  [[nodiscard]] virtual std::vector<ParameterState> parameter_states() = 0;

  // Squared L2 norm of all gradients, f64 [1] on the device.
  void squared_grad_norm(const Tensor& result) const;
  // Forgets the gradients and gives their memory back.
  void zero_grad() { zero_grad({0, parameters_.size()}); }
  virtual void zero_grad(ParameterRange part);
  [[nodiscard]] const std::vector<Parameter*>& parameters() const noexcept { return parameters_; }

 protected:
  // The gradient of a parameter, zeros where it got no contribution.
  [[nodiscard]] Tensor gradient_of(std::size_t index) const;
  [[nodiscard]] std::int64_t gradient_bytes(std::size_t index) const;

 private:
  std::vector<Parameter*> parameters_;
};

}  // namespace quench::nn
