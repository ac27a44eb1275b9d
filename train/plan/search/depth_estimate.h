#pragma once
// Estimates of a deep model from those of two models of fewer layers, for the search of a plan, whose winner is
// estimated as a whole: each layer of a kind adds the same tensors and the same work.

#include <optional>
#include <string>
#include <vector>

#include "train/plan/estimate.h"

namespace quench {

struct ShallowModels {
  nn::ModelConfig fewer, more;
  double steps = 0;  // (all layers - those of `fewer`) / (those of `more` - those of `fewer`)
};

// Unset: the model is not much deeper, or its layers do not repeat.
[[nodiscard]] std::optional<ShallowModels> shallow_models(const nn::ModelConfig& model);

// True if estimate_by_depth() serves for `config`, read with these words of a command line: no pipeline stages, no
// objective with a section of its own, and no layers that are named one by one.
[[nodiscard]] bool scales_with_depth(const RunConfig& config, const std::vector<std::string>& overrides);

// Reserved memory in that of tensors, at most, by the gaps between them; unset: not known. 1.07 in estimates of models
// with 48 to 126 layers; more where state, or activations of some of the `layers`, leave for host memory between
// tensors that stay.
[[nodiscard]] std::optional<double> most_gaps(const RunConfig& config, std::int64_t layers);

// Memory, host memory and time of `config`, which has `layers` layers, by brief simulations; other members are those of
// `more`. total_bytes is the peak of tensors, without the gaps between them. Errors are those of estimate_run().
[[nodiscard]] RunEstimate estimate_by_depth(const RunConfig& config, std::int64_t layers, const ShallowModels& shallow,
                                            Device target, const Cluster& cluster);

}  // namespace quench
