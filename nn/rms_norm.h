#pragma once

#include "nn/module.h"

namespace quench::nn {

// Weight [size] and eps of an RMSNorm; ops read them (autograd::rms_norm).
class RmsNorm final : public Module {
 public:
  RmsNorm(std::int64_t size, float eps, const ParameterOptions& options)
      : weight_(make_parameter({size}, options, Initializer::ones)), eps_(eps) {
    add_parameter("weight", weight_);
  }
  [[nodiscard]] Weight weight() const { return weight_.weight(); }
  [[nodiscard]] float eps() const noexcept { return eps_; }

 private:
  Parameter weight_;
  float eps_;
};

}  // namespace quench::nn
