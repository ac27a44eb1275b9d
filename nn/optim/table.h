#pragma once
// Table of optimizers: names, config keys, memory per parameter, constructors.

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/system/choice_table.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizer_options.h"

namespace quench::nn {

// Entry of the table of optimizers.
struct OptimizerEntry {
  std::string_view name;
  std::string_view summary;
  // Keys of config section optimizer, in addition to the common ones (name, lr, weight_decay, decay_exclude, groups,
  // stochastic_rounding, offload_ratio, offload_streamed, update_in_backward).
  std::span<const std::string_view> keys;
  int moments;                     // moments per parameter, excluding a master weight
  double moment_bytes;             // minimum bytes of a moment; 0: as the key state
  std::string_view moment_format;  // empty: the key state
  // Without learned scales.
  std::unique_ptr<Optimizer> (*make)(const std::vector<Parameter*>& parameters, const OptimizerOptions& options);
  // Updates elements independently of each other: any slice of a weight as the whole.
  bool is_elementwise = false;
};

// Default first.
[[nodiscard]] const ChoiceTable<OptimizerEntry>& optimizer_table();
// Throws bad_config for an unknown name.
[[nodiscard]] const OptimizerEntry& find_optimizer(std::string_view name);

// Learned scales (Parameter::scales) get multiplicative updates.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerEntry& entry,
                                                        const std::vector<Parameter*>& parameters,
                                                        const OptimizerOptions& options);

}  // namespace quench::nn
