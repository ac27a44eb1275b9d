#include "train/objectives/entries.h"

#include "train/objectives/mtp/run/mtp_objective.h"
#include "train/session/run_session.h"

namespace quench {
namespace {

class MtpRun final : public RunObjective {
 public:
  explicit MtpRun(const RunSession& session) : objective_(session.model(), session.config().training.mtp_loss_weight) {}
  [[nodiscard]] Objective* training() noexcept override { return &objective_; }

 private:
  MtpObjective objective_;
};

}  // namespace

const ObjectiveRuntime kMtpRuntime{
    .make = [](const RunSession& session, const ObjectiveInputs*) -> std::unique_ptr<RunObjective> {
      if (session.model_config().mtp.layers == 0) return std::make_unique<RunObjective>();
      return std::make_unique<MtpRun>(session);
    }};

}  // namespace quench
