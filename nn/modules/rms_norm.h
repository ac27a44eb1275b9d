#pragma once
// RMSNorm layer: a weight [size] and its form, without a forward pass of its own.

#include <utility>

#include "core/ops/norm.h"
#include "nn/modules/module.h"

namespace quench::nn {

// Weight [size] and form of an RMSNorm; ops read them (autograd::rms_norm).
class RmsNorm final : public Module {
 public:
  RmsNorm(std::int64_t size, const RmsNormForm& form, const ParameterOptions& options)
      : weight_(make_parameter({size}, options, form.weight_offset == 0.0f ? Initializer::ones : Initializer::zeros)),
        form_(form) {
    add_parameter("weight", weight_);
  }
  [[nodiscard]] Weight weight() const { return read_->weight(); }
  [[nodiscard]] const RmsNormForm& form() const noexcept { return form_; }

  [[nodiscard]] Parameter& own_weight() noexcept { return weight_; }
  // Registers `copy` as "modules_to_save.weight", read in place of the own weight; null: removes it. Must outlive its
  // use.
  void set_copy(Parameter* copy);
  // For passes between two exchanges, as Linear::exchange_kernel().
  void exchange_weight(const Parameter*& weight) noexcept { std::swap(read_, weight); }

 private:
  Parameter weight_;
  Parameter* copy_ = nullptr;
  const Parameter* read_ = &weight_;
  RmsNormForm form_;
};

}  // namespace quench::nn
