#pragma once
// The optimizers that a run may choose: optimizer.name.

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/system/choice_table.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizer_options.h"

namespace quench::nn {

struct OptimizerEntry {
  std::string_view name;
  std::string_view summary;  // one line for documents
  // Keys of the config section optimizer that act on it, beside those that act on every one (name, lr, weight_decay,
  // decay_exclude, stochastic_rounding, offload_ratio).
  std::span<const std::string_view> keys;
  int moments;                     // numbers that it keeps for a parameter, beside a master weight
  double moment_bytes;             // of one, at least; 0: those of the key state
  std::string_view moment_format;  // for people; empty: the key state
  // Without learned scales among the parameters: make_optimizer() below is for all.
  std::unique_ptr<Optimizer> (*make)(const std::vector<Parameter*>& parameters, const OptimizerOptions& options);
};

// All optimizers, the default first.
[[nodiscard]] const ChoiceTable<OptimizerEntry>& optimizer_table();
// Throws bad_config with the list of names for an unknown one.
[[nodiscard]] const OptimizerEntry& find_optimizer(std::string_view name);

// The optimizer of a model's parameters. Learned scales (Parameter::scales) move by the factors that its steps are for
// them (multiplicative_updates.h).
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerEntry& entry,
                                                        const std::vector<Parameter*>& parameters,
                                                        const OptimizerOptions& options);

}  // namespace quench::nn
