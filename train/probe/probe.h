#pragma once
// Measured speed and error of float8 recipes on the layers, batch and device of a run, and the recommended recipe.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "train/config/run_config.h"
#include "train/probe/choose.h"

namespace quench {

// Limits of a measurement.
struct ProbeOptions {
  ErrorBound bound;
  // Errors of all layers. False: two layers suffice for random weights, which are alike in every layer; loaded weights
  // are always measured in all.
  bool whole_model = true;
  // CPU: approximate time budget. If exceeded by a whole micro-batch, a part of it is measured, and errors of random
  // weights in two layers. Unset: unlimited.
  std::optional<double> seconds;
  std::function<void(const std::string&)> progress;  // called with the next phase
};

// Times, errors and the choice that follows from them.
struct ProbeResult {
  Device device;
  std::string device_name;
  bool emulated = false;             // no float8 tensor cores, or recipe.emulate: chooses bf16
  std::int64_t tokens = 0;           // tokens per micro-batch
  std::int64_t measured_tokens = 0;  // tokens in times and errors
  DType dtype = DType::bf16;
  bool real_data = false;     // data.train, else random tokens
  bool real_weights = false;  // weights of model.path, else random
  std::int64_t short_layers = 0;
  ErrorBound bound;
  bool sampled = false;  // errors of two layers only
  std::vector<LayerTimes> layers;
  std::vector<LayerError> errors;
  std::vector<Candidate> candidates;
  RecipeChoice choice;
  double seconds = 0;
};

// Memory: weights plus about two layers' training; all released. Throws errors of opening the data and loading the
// weights, and out_of_memory.
[[nodiscard]] ProbeResult run_probe(const RunConfig& config, Device device, const ProbeOptions& options = {});

// Names of the probed recipes; `batch_invariant`: without those that mix rows.
[[nodiscard]] std::vector<std::string> probed_recipes(bool batch_invariant = false);

// Tables printed by `quench probe`, and JSON.
[[nodiscard]] std::string to_string(const ProbeResult& result);
// The report of `quench probe --json`.
[[nodiscard]] Json to_json(const ProbeResult& result);

}  // namespace quench
