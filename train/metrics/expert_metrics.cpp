#include "train/metrics/expert_metrics.h"

#include <string>

namespace quench {

Json to_json(const ExpertMetrics& metrics) {
  double balance = 0, z = 0;
  Json layers = Json::object();
  for (const nn::ExpertLoad::Layer& layer : metrics.layers) {
    balance += layer.balance / static_cast<double>(metrics.layers.size());
    z += layer.z / static_cast<double>(metrics.layers.size());
    Json shares = Json::array();
    for (const double share : layer.share) shares.push_back(share);
    layers.set(std::to_string(layer.layer), std::move(shares));
  }
  Json record = Json::object();
  record.set("step", metrics.step);
  record.set("time", metrics.unix_time);
  record.set("imbalance", metrics.imbalance());
  record.set("balance_loss", balance > 0 ? Json(balance) : Json());
  record.set("z_loss", balance > 0 ? Json(z) : Json());
  record.set("layers", std::move(layers));
  return record;
}

}  // namespace quench
