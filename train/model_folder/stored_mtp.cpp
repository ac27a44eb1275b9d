#include "train/model_folder/stored_mtp.h"

#include <algorithm>

#include "export/formats/model_tensors.h"
#include "export/table/open_stored_weights.h"

namespace quench {

bool holds_mtp(const StoredWeights& weights, const nn::ModelConfig& config) {
  return std::ranges::any_of(weights.names(), [&](const std::string& name) { return !mtp_part(name, config).empty(); });
}

bool holds_mtp(const std::filesystem::path& folder, const nn::ModelConfig& config) {
  return config.mtp.declared > 0 && holds_mtp(*open_stored_weights(folder, config.source), config);
}

}  // namespace quench
