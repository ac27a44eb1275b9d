#pragma once
// Training by a config, for the verbs `train` and `tune`.

#include "apps/options/config_arguments.h"

namespace quench {

// On every rank, to the end of the run or a signal; rank 0 prints the result as JSON if asked. Throws ExitRequest with
// the signal's status after one, and like Trainer.
void train_as_configured(const ConfigArguments& arguments);

}  // namespace quench
