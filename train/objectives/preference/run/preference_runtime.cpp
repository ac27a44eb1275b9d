#include "train/objectives/entries.h"

#include <algorithm>

#include "core/memory/allocator.h"
#include "train/model_folder/model_folder.h"
#include "train/objectives/preference/preference_section.h"
#include "train/objectives/preference/run/preference_objective.h"
#include "train/objectives/preference/run/reference_setup.h"
#include "train/session/frozen_model.h"
#include "train/session/run_session.h"
#include "train/step/meta_batch.h"

namespace quench {
namespace {

AnswerLossOptions loss_options_of(const PreferenceSection& section) {
  return {.loss = section.loss,
          .beta = section.beta,
          .label_smoothing = section.label_smoothing,
          .length_normalization = section.length_normalization,
          .simpo_margin = section.simpo_margin,
          .desirable_weight = section.desirable_weight,
          .undesirable_weight = section.undesirable_weight};
}

class PreferenceRun final : public RunObjective {
 public:
  explicit PreferenceRun(const RunSession& session)
      : config_(session.config()), model_(session.model()), ranks_(session.ranks()) {
    const AnswerLossOptions options = loss_options_of(*preference_section(config_));
    ReferenceModel *train = nullptr, *validation = nullptr;
    if (needs_reference(options.loss)) {
      if (reference_of(config_) == kBaseReference) {
        base_.emplace(model_);
        train = validation = &*base_;
      } else {
        train = &train_reference_.emplace();
        validation = &validation_reference_.emplace();
      }
    }
    train_.emplace(model_, options, train, ranks_);
    validation_.emplace(model_, options, validation, ranks_);
  }

  [[nodiscard]] Objective* training() noexcept override { return &*train_; }
  [[nodiscard]] Objective* validation() noexcept override { return &*validation_; }
  void start(const ObjectiveStart& start) override {
    if (train_reference_) fill_references({*train_reference_, *validation_reference_}, config_, model_, start, ranks_);
  }

 private:
  const RunConfig& config_;
  nn::CausalLm& model_;
  const distributed::Ranks& ranks_;
  std::optional<BaseReference> base_;
  // Unless the reference's log-probabilities are computed once, none.
  std::optional<StoredReference> train_reference_, validation_reference_;
  std::optional<PreferenceObjective> train_, validation_;
};

// The folder's model in preference.reference.
SecondModelBytes reference_bytes(const RunConfig& config, const distributed::Ranks& ranks) {
  const PreferenceSection& section = *preference_section(config);
  if (!needs_reference(section.loss) || !names_folder(section)) return {};
  const std::string& folder = section.reference;
  Allocator& plan = Allocator::of(kMeta);
  plan.reset_peak();
  const std::int64_t before = plan.stats().current;
  const FrozenModel model = make_frozen_model(config, read_model_config(folder),
                                              {.folder = folder, .offload = section.offload}, kMeta, ranks);
  SecondModelBytes bytes{.device = plan.stats().current - before};
  if (model.offloader != nullptr) {
    // A shard is filled on the device before its layers go to host memory.
    bytes.device = std::max(bytes.device + model.offloader->device_bytes(), plan.stats().peak - before);
    bytes.host = model.offloader->host_bytes();
  }
  return bytes;
}

// The reference "base" is the model without adapters.
std::optional<nn::ModelConfig> second_model(const RunConfig& config, const nn::ModelConfig& own) {
  const bool base = needs_reference(preference_section(config)->loss) && reference_of(config) == kBaseReference;
  return base ? std::optional(own) : std::nullopt;
}

}  // namespace

const ObjectiveRuntime kPreferenceRuntime{
    .make = [](const RunSession& session, const ObjectiveInputs*) -> std::unique_ptr<RunObjective> {
      return std::make_unique<PreferenceRun>(session);
    },
    .second_model = second_model,
    .start_bytes = reference_bytes,
    .arrange = arrange_pairs};

}  // namespace quench
