#include "nn/models/sparse_layers.h"

namespace quench::nn {

std::vector<bool> read_sparse_layers(ConfigReader& in, const ModelConfig& config) {
  std::vector<bool> layers;
  const std::int64_t step = in.integer("decoder_sparse_step", 1, 1, kMaxDimension);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) layers.push_back((layer + 1) % step == 0);
  if (const Json* dense = in.find("mlp_only_layers"); dense != nullptr) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, dense->is_array(), "{}: mlp_only_layers: expected a list of layers, got {}",
                    in.source(), dense->dump());
    for (const Json& layer : dense->as_array()) {
      if (!layer.is_integer() || layer.as_double() < 0 ||
          layer.as_double() >= static_cast<double>(config.num_hidden_layers))
        in.fault("mlp_only_layers", fmt::format("{} is no layer of this model", layer.dump()));
      else
        layers[static_cast<std::size_t>(layer.as_int())] = false;
    }
  }
  return layers;
}

void write_sparse_layers(const ModelConfig& config, Json& json) {
  Json dense = Json::array();
  for (const BlockSpec& block : config.blocks)
    if (!block.feed_forward.experts) dense.push_back(block.layer);
  json.set("decoder_sparse_step", std::int64_t{1});
  json.set("mlp_only_layers", std::move(dense));
}

}  // namespace quench::nn
