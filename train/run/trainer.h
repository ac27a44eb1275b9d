#pragma once
// Training run from config to final checkpoint.

#include <memory>
#include <optional>
#include <string>

#include "core/device/device.h"
#include "distributed/ranks.h"
#include "train/config/run_config.h"

namespace quench {

struct TrainResult {
  std::int64_t step = 0;  // optimizer steps completed
  double loss = 0;
  int stop_signal = 0;     // SIGTERM or SIGINT that ended the run early (state saved), else 0
  std::string checkpoint;  // newest checkpoint folder; empty if none
  std::string exported;    // exported model folder; empty if none
};

class Trainer {
 public:
  // Console text goes to descriptor `console` and log.txt. Multi-rank: `ranks` identifies this process; rank 0 writes
  // the run's files, all ranks write their checkpoint shards.
  Trainer(RunConfig config, Device device, int console = 1, std::shared_ptr<const distributed::Ranks> ranks = nullptr);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Trains to the last step, a stop signal or an error. Throws bad_config and unsupported before any write, locked for
  // a run folder in use, nonfinite by the loss guard. Completed checkpoints stay intact on any error.
  TrainResult run();

 private:
  struct Run;
  std::unique_ptr<Run> run_;
};

}  // namespace quench
