#pragma once
// AdamW over a model's parameters: owns the moments and, where asked, f32 master weights.

#include <functional>
#include <string>
#include <vector>

#include "core/ops/adamw.h"
#include "nn/optim/parameter_state.h"
#include "nn/parameter.h"

namespace quench::nn {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  DType state_dtype = DType::f32;   // f32 or bf16 moments
  bool master_weights = false;      // keep an f32 copy of bf16 parameters
  bool stochastic_rounding = true;  // where bf16 parameters without master, or bf16 moments, are written
  std::uint64_t seed = 0;
  // Parameters (by name) that are not decayed; empty: all are.
  std::function<bool(const Parameter&)> exclude_from_decay;
};

class AdamW {
 public:
  // Moments start at zero, master weights from the parameters' current values: create it after initialisation or
  // loading. Frozen parameters are skipped. Keeps pointers to the parameters.
  AdamW(std::vector<Parameter*> parameters, AdamWOptions options);

  // One update with the gradients multiplied by grad_scale (f32 [1] on the device; non-finite: nothing changes).
  // Parameters whose gradient got no contribution are treated as having a zero gradient. `step` is 1-based.
  void step(double lr, std::int64_t step, const Tensor& grad_scale);
  // That of some of parameters() alone. The parts of an update may come in any order, and leave the bits of one call.
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part);

  // Squared L2 norm of all gradients, f64 [1] on the device.
  void squared_grad_norm(const Tensor& result) const;
  // Forgets the gradients and gives their memory back.
  void zero_grad() { zero_grad({0, parameters_.size()}); }
  void zero_grad(ParameterRange part);
  // Copies the parameters' values into the master weights again (after loading a checkpoint without them).
  void refresh_master();

  // State tensors for checkpoints: "optimizer.exp_avg.<parameter>", "optimizer.exp_avg_sq.<parameter>" and
  // "optimizer.master.<parameter>", with the parameter they belong to.
  struct StateTensor {
    std::string name;
    Tensor tensor;
    const Parameter* parameter;
  };
  [[nodiscard]] std::vector<StateTensor> state() const;
  [[nodiscard]] static std::string master_name(const Parameter& parameter) {
    return "optimizer.master." + parameter.name;
  }
  // Where the tensors of state() are kept, by parameter, for an owner that moves them to and fro. They are needed, with
  // the values they had, where the parameter is updated, by state() and by refresh_master().
  [[nodiscard]] std::vector<ParameterState> parameter_states();
  [[nodiscard]] const std::vector<Parameter*>& parameters() const noexcept { return parameters_; }

 private:
  std::vector<Parameter*> parameters_;
  AdamWOptions options_;
  std::vector<AdamWTensor> tensors_;
};

}  // namespace quench::nn
