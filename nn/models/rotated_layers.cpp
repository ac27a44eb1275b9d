#include "nn/models/rotated_layers.h"

namespace quench::nn {

std::vector<bool> read_rotated_layers(ConfigReader& in, std::int64_t count) {
  const std::int64_t interval = in.integer("no_rope_layer_interval", 4, 1, kMaxDimension);
  std::vector<bool> rotated(static_cast<std::size_t>(count), true);
  const Json* list = in.find("no_rope_layers");
  if (list == nullptr || (list->is_array() && list->as_array().empty())) {
    for (std::int64_t layer = interval - 1; layer < count; layer += interval)
      rotated[static_cast<std::size_t>(layer)] = false;
    return rotated;
  }
  if (!list->is_array() || static_cast<std::int64_t>(list->as_array().size()) < count) {
    in.fault("no_rope_layers", fmt::format("expected a list of {} numbers, one a layer: 1 with rotary positions, 0 "
                                           "without; got {}",
                                           count, list->dump()));
    return rotated;
  }
  for (std::size_t layer = 0; layer < rotated.size(); ++layer) {
    const Json& flag = list->as_array()[layer];
    if (flag.is_integer() && (flag.as_double() == 0 || flag.as_double() == 1))
      rotated[layer] = flag.as_int() == 1;
    else
      in.fault("no_rope_layers", fmt::format("{} of layer {} is neither 0 nor 1", flag.dump(), layer));
  }
  return rotated;
}

void write_rotated_layers(const ModelConfig& config, Json& json) {
  Json flags = Json::array();
  for (const BlockSpec& block : config.blocks) flags.push_back(std::int64_t{block.attention.rotary.has_value()});
  json.set("no_rope_layers", std::move(flags));
}

}  // namespace quench::nn
