#pragma once
// Log-probabilities of a run's reference model, computed once and kept in data.cache.

#include <string>

#include "data/formats/validation_cache.h"
#include "distributed/ranks.h"
#include "train/config/run_config.h"
#include "train/objectives/preference/run/preference_objective.h"
#include "train/session/data_setup.h"
#include "train/session/run_objective.h"

namespace quench {

// Name in data.cache of the stored log-probabilities of `data`, keyed by weights and answers.
[[nodiscard]] std::string reference_file(const RunConfig& config, const Dataset& data, ValidationCache& checks);

// Log-probabilities of answers, computed once.
class StoredReference final : public ReferenceModel {
 public:
  // By source of the dataset and item: sums of the first and of the second answer.
  using Values = std::vector<std::vector<double>>;
  void set(Values values) { values_ = std::move(values); }

  // Throws corrupt for a pair without values.
  [[nodiscard]] Tensor answer_logps(const ObjectiveInput& in) override;

 private:
  Values values_;
};

struct StoredReferences {
  StoredReference& train;
  StoredReference& validation;
};

// Log-probabilities of the reference: from data.cache, or computed and stored there. Collective. Throws bad_config if
// the weights of `model` are not those before the first step and nothing is stored, and for a folder whose model has
// another vocabulary or tokenizer; nonfinite.
void fill_references(const StoredReferences& references, const RunConfig& config, nn::CausalLm& model,
                     const ObjectiveStart& start, const distributed::Ranks& ranks);

}  // namespace quench
