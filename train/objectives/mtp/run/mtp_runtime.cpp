#include "train/objectives/entries.h"

#include "train/objectives/mtp/run/mtp_objective.h"
#include "train/session/model_setup.h"
#include "train/session/run_objective.h"

namespace quench {
namespace {

class MtpRun final : public RunObjective {
 public:
  explicit MtpRun(const ObjectiveSession& session)
      : objective_(*session.setup.model, session.config.training.mtp_loss_weight) {}
  [[nodiscard]] Objective* training() noexcept override { return &objective_; }

 private:
  MtpObjective objective_;
};

}  // namespace

const ObjectiveRuntime kMtpRuntime{.make = [](const ObjectiveSession& session) -> std::unique_ptr<RunObjective> {
  if (session.setup.config.mtp.layers == 0) return std::make_unique<RunObjective>();
  return std::make_unique<MtpRun>(session);
}};

}  // namespace quench
