#pragma once
// Preference training of a run (section preference).

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/formats/validation_cache.h"
#include "distributed/ranks.h"
#include "train/config/run_config.h"
#include "train/objective/stored_reference.h"
#include "train/setup/data_setup.h"
#include "train/setup/model_setup.h"

namespace quench {

[[nodiscard]] PreferenceLossOptions preference_options(const PreferenceSection& section);

// preference.reference with auto resolved. Section preference must be present.
[[nodiscard]] std::string_view reference_of(const RunConfig& config);

// "preference: ..." for the start report; empty without section preference.
[[nodiscard]] std::string describe_preferences(const RunConfig& config);

// Objectives of training and validation, with their reference model.
struct PreferenceSetup {
  // Null: none, or stored.
  std::unique_ptr<BaseReference> base;
  // Null unless the reference's log-probabilities are computed once.
  std::unique_ptr<StoredReference> train_reference, validation_reference;
  std::unique_ptr<PreferenceObjective> train, validation;
};

// Null without section preference. `model` and `ranks` must outlive it.
[[nodiscard]] std::unique_ptr<PreferenceSetup> make_preferences(const RunConfig& config, nn::CausalLm& model,
                                                                const distributed::Ranks* ranks);

// Name in data.cache of the stored log-probabilities of `data`, keyed by weights and answers.
[[nodiscard]] std::string reference_file(const RunConfig& config, const Dataset& data, ValidationCache& checks);
// Earlier name of those of the initial model, by the whole section model; none for another reference.
[[nodiscard]] std::optional<std::string> earlier_reference_file(const RunConfig& config, const Dataset& data,
                                                                ValidationCache& checks);

// Log-probabilities of the reference: from data.cache, or computed and stored there. `initial`: the weights of `model`
// are those before the first step. `checks`: hashes of files. Collective. Throws bad_config if they are not and nothing
// is stored, and for a folder whose model has another vocabulary or tokenizer; nonfinite.
void fill_references(PreferenceSetup& setup, const RunConfig& config, nn::CausalLm& model, Device device,
                     const DataSetup& data, bool initial, ValidationCache& checks, const distributed::Ranks* ranks);

}  // namespace quench
