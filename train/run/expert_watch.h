#pragma once
// ExpertWatch: loads of a run's experts, for metrics and for biases of the router. Nothing for dense models.

#include <cstdint>
#include <memory>
#include <optional>

#include "nn/experts/expert_load.h"
#include "train/metrics/step_metrics.h"
#include "train/session/run_session.h"

namespace quench {

class ExpertWatch {
 public:
  // The session has a step, and outlives the watch.
  explicit ExpertWatch(const RunSession& session);

  // Counts loads in the next accumulate(), if it is logged or biases follow them.
  void begin_step(bool is_logged);
  // After accumulate(): sums over ranks, and the loads of `step` if it is logged. Collective.
  [[nodiscard]] std::optional<ExpertMetrics> end_step(std::int64_t step);
  // Moves the routers' biases against the loads.
  void update_biases();

 private:
  const RunSession& session_;
  std::unique_ptr<nn::ExpertLoad> load_;
  float bias_speed_;  // 0: constant
  bool is_logged_ = false;
  bool counts_ = false;
};

}  // namespace quench
