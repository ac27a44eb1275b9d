#include "train/objectives/preference/run/stored_reference.h"

#include "core/system/check.h"

namespace quench {

std::vector<double> StoredReference::answer_logps(const ObjectiveInput& in) {
  std::vector<double> sums(in.batch.sequences.size());
  for (const AnswerPair& pair : in.batch.pairs) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, pair.source < values_.size() && 2 * pair.item + 1 < values_[pair.source].size(),
                    "no log-probabilities of the reference model for pair {} of source {}", pair.item, pair.source);
    const std::vector<double>& source = values_[pair.source];
    sums.at(pair.sequence) = source[2 * pair.item];
    sums.at(pair.sequence + 1) = source[2 * pair.item + 1];
  }
  return sums;
}

}  // namespace quench
