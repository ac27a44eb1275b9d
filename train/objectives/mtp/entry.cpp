#include "train/objectives/entries.h"
#include "train/objectives/mtp/check_mtp.h"

namespace quench {

ObjectiveEntry mtp_entry() {
  return {.name = "mtp",
          .summary = "next-token cross-entropy with that of multi-token prediction (training.mtp_loss_weight)",
          .trains = [](const RunConfig& config) { return config.training.mtp_loss_weight > 0; },
          .check_model = check_mtp,
          .takes_parts = true,
          .runtime = &kMtpRuntime};
}

}  // namespace quench
