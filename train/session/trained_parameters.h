#pragma once
// Parameters chosen by glob patterns over Hugging Face names: training.freeze, training.train, optimizer.groups.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/decoder/causal_lm.h"
#include "train/config/run_config.h"

namespace quench {

// A config key's list of patterns, "optimizer.groups[1].match".
struct ParameterPatterns {
  std::string key;
  std::vector<std::string> patterns;
};

// Whether a pattern matches the name of the parameter or of one of its pieces.
[[nodiscard]] bool matches_any(std::span<const std::string> patterns, const nn::Parameter& parameter);

// Index of the first list that matches; nullopt: none. A pattern matches the name of a parameter or of its pieces.
// Throws bad_config naming the pieces if those of a fused parameter differ.
[[nodiscard]] std::optional<std::size_t> first_match(std::span<const ParameterPatterns> lists,
                                                     const nn::Parameter& parameter);
// Throws bad_config for a pattern without match, naming the nearest name.
void require_matches(const ParameterPatterns& list, std::span<const nn::Parameter* const> parameters,
                     std::string_view what = "parameter");

// optimizer.groups over the parameters with a gradient. The constructor throws bad_config as first_match() and
// require_matches().
class ParameterGroups {
 public:
  ParameterGroups(nn::CausalLm& model, const OptimizerSection& optimizer);
  // Factor of the learning rate.
  [[nodiscard]] double lr_scale(const nn::Parameter& parameter) const;
  [[nodiscard]] std::optional<double> weight_decay(const nn::Parameter& parameter) const;
  // Whether a group changes the learning rate.
  [[nodiscard]] bool scales() const;
  // "optimizer.groups[0]: lr 0.0003, weight decay 0, 1,024 parameters", one a line.
  [[nodiscard]] std::string describe(nn::CausalLm& model) const;

 private:
  [[nodiscard]] const ParameterGroup* group_of(const nn::Parameter& parameter) const;

  double lr_;
  std::vector<ParameterGroup> groups_;
  std::vector<ParameterPatterns> lists_;
};

// Freezes the parameters that training.freeze matches, and those that a non-empty training.train does not. Learned
// scales are frozen with their weight. Before sharding. Throws bad_config if nothing is left to train.
void freeze_parameters(nn::CausalLm& model, const TrainingSection& training);

// Elements with a gradient.
[[nodiscard]] std::int64_t trained_elements(nn::CausalLm& model);
// "trained: 1,024 of 4,096 parameters (25.00%); frozen: model.embed_tokens.weight, model.layers.*.mlp.down_proj.weight
// (1 of 2)"
[[nodiscard]] std::string describe_frozen(nn::CausalLm& model);

}  // namespace quench
