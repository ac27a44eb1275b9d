#pragma once
// Names of the losses of answers in configs.

#include "core/ops/loss/answer_loss_terms.h"
#include "core/system/enum_names.h"

namespace quench {

template <>
struct EnumNames<AnswerLoss> {
  using E = AnswerLoss;
  static constexpr EnumTable<E, 5> values = {
      {{E::dpo, "dpo"}, {E::ipo, "ipo"}, {E::simpo, "simpo"}, {E::orpo, "orpo"}, {E::kto, "kto"}}};
};

}  // namespace quench
