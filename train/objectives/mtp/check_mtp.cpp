#include "train/objectives/mtp/check_mtp.h"
#include "train/config/objective_table.h"

#include "nn/spec/model_family.h"
#include "train/model_source/model_source.h"

namespace quench {
namespace {

constexpr std::string_view kWeightKey = "training.mtp_loss_weight", kDepthKey = "model.num_nextn_predict_layers";

std::string families_with_mtp() {
  std::string names;
  for (const nn::ModelFamily& family : nn::model_families())
    if (family.mtp) names += (names.empty() ? "" : ", ") + std::string(family.architecture);
  return names;
}

// Section of the run that MTP is not implemented with; empty: none.
std::string_view conflicting_section(const RunConfig& config) {
  if (config.lora) return "lora";
  return objective_section_of(config);
}

}  // namespace

std::int64_t stored_mtp_layers(const RunConfig& config) {
  if (config.model.path.empty()) return 0;
  const Json source = ModelSource::open(config.model.path).config();
  const Json* stored = source.find("num_nextn_predict_layers");
  return stored != nullptr && stored->is_integer() ? stored->as_int() : 0;
}

void check_mtp(Checker& checker, const nn::ModelConfig& model) {
  const RunConfig& config = checker.config();
  const double weight = config.training.mtp_loss_weight;
  if (!checker.usable({kWeightKey, kDepthKey})) return;
  if (config.model.init != ModelSection::Init::random && checker.options().files)
    if (const std::int64_t stored = stored_mtp_layers(config); stored > 0 && stored != model.mtp.declared)
      return checker.report(std::string(kDepthKey), "{}, but the model in {} has {} such layers; remove the key",
                            model.mtp.declared, config.model.path, stored);
  if (weight <= 0) return;
  const std::string key(kWeightKey);
  if (const nn::ModelFamily* family = nn::find_model_family(model.architecture); family == nullptr || !family->mtp)
    return checker.report(key, "{} has no layers of multi-token prediction ({} has); remove the key",
                          model.architecture, families_with_mtp());
  if (model.mtp.declared == 0)
    return checker.report(key, "the model has no layers of multi-token prediction; set {} to their number, such as 1",
                          kDepthKey);
  if (const std::string_view section = conflicting_section(config); !section.empty())
    return checker.report(key,
                          "multi-token prediction is trained with the next-token cross-entropy in full training, not "
                          "with section {}; remove one of the two",
                          section);
  if (checker.usable({"data.seq_len"}) && model.mtp.declared >= config.data.seq_len)
    checker.report(std::string(kDepthKey),
                   "{}, but a sequence of data.seq_len {} has no targets at that depth; use fewer", model.mtp.declared,
                   config.data.seq_len);
}

}  // namespace quench
