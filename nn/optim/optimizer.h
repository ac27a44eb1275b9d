#pragma once
// Optimizer; owns its state.

#include <string>
#include <string_view>
#include <vector>

#include "nn/modules/parameter.h"
#include "nn/optim/parameter_state.h"

namespace quench::nn {

class Optimizer {
 public:
  // Keeps pointers to unfrozen parameters.
  explicit Optimizer(const std::vector<Parameter*>& parameters);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates a range of parameters() with gradients multiplied by grad_scale (f32 [1] on the device; non-finite: no
  // change). Missing gradients count as zero. `step` is 1-based. Results are independent of the order of ranges.
  virtual void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) = 0;
  void step(double lr, std::int64_t step, const Tensor& grad_scale) {
    this->step(lr, step, grad_scale, {0, parameters_.size()});
  }
  // After loading a checkpoint without state.
  virtual void refresh_master();

  // State tensors for checkpoints, "optimizer.<what>.<parameter>", with their parameter.
  struct StateTensor {
    std::string name;
    Tensor tensor;
    const Parameter* parameter;
  };
  [[nodiscard]] virtual std::vector<StateTensor> state();
  [[nodiscard]] static std::string master_name(const Parameter& parameter) { return state_name(kMaster, parameter); }
  // Lower halves of split master weights, i16 (core/number/split_f32.h).
  [[nodiscard]] static std::string master_low_name(const Parameter& parameter) {
    return state_name(kMasterLow, parameter);
  }
  // For offload; must be resident for step() of the parameter, and unchanged for state() and refresh_master(), which
  // also take tensors in host memory.
  [[nodiscard]] virtual std::vector<ParameterState> parameter_states();

  // f64 [1] on the device, over a range of parameters(); of `more`, norms of other gradients, squares are added.
  void squared_grad_norm(const Tensor& result, ParameterRange part, const Tensor& more = {}) const;
  void squared_grad_norm(const Tensor& result) const { squared_grad_norm(result, {0, parameters_.size()}); }
  void zero_grad() { zero_grad({0, parameters_.size()}); }
  void zero_grad(ParameterRange part);
  [[nodiscard]] const std::vector<Parameter*>& parameters() const noexcept { return parameters_; }

 protected:
  static constexpr std::string_view kMaster = "master", kMasterLow = "master_low";
  // A state tensor: "exp_avg", kMaster, ... Undefined: absent.
  struct KeptTensor {
    std::string_view what;
    Tensor* tensor;
  };
  // Axis 0 of each tensor is that of the parameter.
  [[nodiscard]] virtual std::vector<KeptTensor> kept(std::size_t index) = 0;
  // Zeros if missing.
  [[nodiscard]] Tensor gradient_of(std::size_t index) const;

 private:
  [[nodiscard]] static std::string state_name(std::string_view what, const Parameter& parameter);
  [[nodiscard]] std::vector<KeptTensor> defined(std::size_t index);

  std::vector<Parameter*> parameters_;
};

}  // namespace quench::nn
