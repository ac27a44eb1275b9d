#pragma once
// Whole model of which a rank holds slices or some layers, without values: its names, shapes and pieces, for what
// writes it.

#include <memory>

#include "nn/decoder/causal_lm.h"
#include "nn/modules/whole_rows.h"

namespace quench {

class WholeModel {
 public:
  // The model itself unless it is in slices or a pipeline stage; must outlive this object.
  explicit WholeModel(nn::CausalLm& model);

  [[nodiscard]] nn::CausalLm& model() const noexcept { return described_ ? *described_ : model_; }
  // Rows of model()'s parameters; `whole`: of those of `held`, a model with all names; not empty unless model() is the
  // model itself.
  [[nodiscard]] nn::WholeRows rows(nn::CausalLm& held, nn::WholeRows whole) const;

 private:
  nn::CausalLm& model_;
  std::unique_ptr<nn::CausalLm> described_;  // on the meta device; null: model_ is whole
};

}  // namespace quench
