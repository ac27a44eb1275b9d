#include "export/formats/base_model.h"

#include <algorithm>

#include "core/system/check.h"
#include "export/formats/renamed_weights.h"

namespace quench {
namespace {

constexpr std::string_view kBasePrefix = "model.", kBaseHead = "lm_head.", kBaseLayers = "layers.";

class BaseModelWeights final : public RenamedWeights {
 public:
  using RenamedWeights::RenamedWeights;

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names = weights_->names();
    for (std::string& name : names)
      if (!name.starts_with(kBaseHead)) name.insert(0, kBasePrefix);
    return names;
  }

 private:
  [[nodiscard]] std::string stored(std::string_view name) const override {
    return std::string(name.starts_with(kBasePrefix) ? name.substr(kBasePrefix.size()) : name);
  }
};

}  // namespace

std::unique_ptr<StoredWeights> base_model_weights(std::unique_ptr<StoredWeights> weights) {
  const std::vector<std::string> names = weights->names();
  const auto any = [&](std::string_view beginning) {
    return std::ranges::any_of(names, [&](const std::string& name) { return name.starts_with(beginning); });
  };
  if (any(kBasePrefix) || !any(kBaseLayers)) return weights;
  return std::make_unique<BaseModelWeights>(std::move(weights));
}

}  // namespace quench
