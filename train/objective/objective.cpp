#include "train/objective/objective.h"

#include "train/objective/labelled_rows.h"

namespace quench {

autograd::Variable CrossEntropyObjective::loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                               const Tensor& /*metrics*/) {
  const LabelledRows rows(in.batch.labels, in.ids.device());
  return model_.head_loss(rows.select(model_.hidden(in.ids, in.context)), rows.labels(), scale, options);
}

}  // namespace quench
