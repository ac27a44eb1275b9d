#include "export/formats/head_as_table.h"

#include <algorithm>

#include "export/formats/renamed_weights.h"
#include "nn/spec/model_family.h"

namespace quench {
namespace {

// lm_head.weight under the table's name.
class HeadAsTable final : public RenamedWeights {
 public:
  using RenamedWeights::RenamedWeights;

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names = weights_->names();
    std::ranges::replace(names, kHeadWeight, kEmbeddingWeight);
    return names;
  }
  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override {
    return name == kHeadWeight ? std::nullopt : RenamedWeights::find(name);
  }

 private:
  [[nodiscard]] std::string stored(std::string_view name) const override {
    return std::string(name == kEmbeddingWeight ? kHeadWeight : name);
  }
};

}  // namespace

bool has_tied_head(const Json& config) {
  if (!config.is_object()) return false;
  const Json* tied = config.find("tie_word_embeddings");
  if (tied != nullptr && tied->is_bool()) return tied->as_bool();
  const Json* classes = config.find("architectures");
  const Json* name = classes != nullptr && classes->is_array() && !classes->as_array().empty()
                         ? &classes->as_array().front()
                         : config.find("model_type");
  const nn::ModelFamily* family =
      name != nullptr && name->is_string() ? nn::find_model_family(name->as_string()) : nullptr;
  return (tied == nullptr || tied->is_null()) && family != nullptr && family->defaults.tie_word_embeddings;
}

std::unique_ptr<StoredWeights> head_as_table(std::unique_ptr<StoredWeights> weights, const Json& config) {
  if (!has_tied_head(config) || weights->find(kEmbeddingWeight) || !weights->find(kHeadWeight)) return weights;
  return std::make_unique<HeadAsTable>(std::move(weights));
}

}  // namespace quench
