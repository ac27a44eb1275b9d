#include "train/objectives/preference/run/stored_reference.h"

#include "core/system/check.h"

namespace quench {

Tensor StoredReference::answer_logps(const ObjectiveInput& in) {
  const auto answers = std::ssize(in.batch.sequences);
  if (in.ids.device().is_meta()) return Tensor::empty({answers}, DType::f64, in.ids.device());
  std::vector<double> sums(static_cast<std::size_t>(answers));
  for (const AnswerPair& pair : in.batch.pairs) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, pair.source < values_.size() && 2 * pair.item + 1 < values_[pair.source].size(),
                    "no log-probabilities of the reference model for pair {} of source {}", pair.item, pair.source);
    const std::vector<double>& source = values_[pair.source];
    sums.at(pair.sequence) = source[2 * pair.item];
    sums.at(pair.sequence + 1) = source[2 * pair.item + 1];
  }
  return Tensor::from_values<double>({answers}, sums).to(in.ids.device());
}

}  // namespace quench
