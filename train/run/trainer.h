#pragma once
// A training run from its config to its last checkpoint.

#include <memory>
#include <optional>
#include <string>

#include "core/device/device.h"
#include "distributed/ranks.h"
#include "train/config/run_config.h"

namespace quench {

struct TrainResult {
  std::int64_t step = 0;   // optimizer steps done
  double loss = 0;         // of the last step
  int stop_signal = 0;     // SIGTERM or SIGINT when one ended the run early (state saved), else 0
  std::string checkpoint;  // newest checkpoint's folder, empty when none was written
  std::string exported;    // model folder written at the end, empty when none
};

class Trainer {
 public:
  // Text for people goes to the descriptor `console`, and to log.txt in the run folder. In a run of several processes
  // `ranks` says which this one is: rank 0 writes what the run writes, the others their parts of checkpoints.
  Trainer(RunConfig config, Device device, int console = 1, std::shared_ptr<const distributed::Ranks> ranks = nullptr);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Trains until the last step, a stop signal, or an error. Throws bad_config and unsupported before anything is
  // written, locked when another trainer uses the run folder, nonfinite when the guard stops the run; whatever
  // happens, finished checkpoints stay whole.
  TrainResult run();

 private:
  struct Run;
  std::unique_ptr<Run> run_;
};

}  // namespace quench
