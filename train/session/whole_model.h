#pragma once
// Whole model of which a rank holds slices, without values: its names, shapes and pieces, for what writes it.

#include <memory>

#include "nn/decoder/causal_lm.h"
#include "nn/modules/whole_rows.h"

namespace quench {

class WholeModel {
 public:
  // The model itself unless it is in slices; must outlive this object.
  explicit WholeModel(nn::CausalLm& model);

  [[nodiscard]] nn::CausalLm& model() const noexcept { return described_ ? *described_ : model_; }
  // Rows of model()'s parameters; `whole`: of the slices' parameters, not empty if there are slices.
  [[nodiscard]] nn::WholeRows rows(nn::WholeRows whole) const;

 private:
  nn::CausalLm& model_;
  std::unique_ptr<nn::CausalLm> described_;  // on the meta device; null: no slices
};

}  // namespace quench
