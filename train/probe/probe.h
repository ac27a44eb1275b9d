#pragma once
// What float8 recipes gain and lose on a run's own layers, batch and device, and the recipe to take.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "train/config/run_config.h"
#include "train/probe/choose.h"

namespace quench {

struct ProbeOptions {
  ErrorBound bound;
  // Errors on the whole model. Otherwise random weights, which are alike in every layer, are looked at in two layers;
  // weights that are loaded always in all.
  bool whole_model = true;
  // On a CPU: about how long it may take. Where the whole micro-batch would take longer, a part of it is measured, and
  // errors of random weights in two layers. Absent: as long as it takes.
  std::optional<double> seconds;
  std::function<void(const std::string&)> progress;  // is told what comes next
};

struct ProbeResult {
  Device device;
  std::string device_name;
  bool emulated = false;             // no float8 tensor cores, or recipe.emulate: bf16 is the choice
  std::int64_t tokens = 0;           // of a micro-batch
  std::int64_t measured_tokens = 0;  // of them, what times and errors are of
  DType dtype = DType::bf16;
  bool real_data = false;     // tokens of data.train, else random ones
  bool real_weights = false;  // of model.path, else random ones
  std::int64_t short_layers = 0;
  ErrorBound bound;
  bool sampled = false;  // errors are of two layers
  std::vector<LayerTimes> layers;
  std::vector<LayerError> errors;
  std::vector<Candidate> candidates;
  RecipeChoice choice;
  double seconds = 0;
};

// Needs, beside the weights, about the memory of two layers' training; gives all of it back. Throws what opening the
// data and loading the weights throw, and out_of_memory.
[[nodiscard]] ProbeResult run_probe(const RunConfig& config, Device device, const ProbeOptions& options = {});

// Names of the recipes that are looked at.
[[nodiscard]] std::vector<std::string> probed_recipes();

// The tables that `quench probe` prints, and the same as JSON.
[[nodiscard]] std::string to_string(const ProbeResult& result);
[[nodiscard]] Json to_json(const ProbeResult& result);

}  // namespace quench
