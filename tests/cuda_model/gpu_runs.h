#pragma once
// Shared parts of the tests of whole training runs on a GPU.

#include <string>
#include <vector>

#include "core/device/determinism.h"
#include "tests/cuda/gpu.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"

namespace quench::testing {

// The number of a line of TinyRun::losses().
inline double loss_of(const std::string& logged) {
  return std::stod(logged.substr(logged.find(':') + 1));
}

// Stopped at half and resumed equals uninterrupted, in logged losses and in every stored tensor.
inline void expect_exact_resume(std::vector<std::string> overrides) {
  const TinyRun tiny;
  overrides.emplace_back("--training.deterministic=true");
  overrides.emplace_back("--lr_schedule.decay_steps=36");
  std::vector<std::string> half = overrides;
  half.emplace_back("--training.steps=20");
  tiny.run(tiny.config("whole", overrides), kGpu);
  tiny.run(tiny.config("parts", half), kGpu);
  tiny.run(tiny.config("parts", overrides), kGpu);
  set_deterministic(false);
  EXPECT_EQ(tiny.losses("parts"), tiny.losses("whole"));
  expect_same_tensors(tiny.checkpoint("parts", 40), tiny.checkpoint("whole", 40));
}

}  // namespace quench::testing
