#include "export/budget/planner.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/system/log.h"
#include "export/budget/output_divergence.h"
#include "export/budget/sensitivity.h"
#include "export/budget/weight_error.h"
#include "export/ptq/fuse_scales.h"
#include "export/ptq/layer_walk.h"
#include "export/ptq/observers.h"
#include "export/table/fused_layers.h"
#include "export/table/mixed_types.h"
#include "recipes/convert.h"

namespace quench {
namespace {

// Upper bounds of what files hold next to values and a tokenizer: GGUF names and pads each tensor, safetensors name up
// to four tensors for a layer.
constexpr std::int64_t kFileBytes = 4096, kGgufTensorBytes = 160, kTensorBytes = 640;

std::int64_t high_precision_bits(const ModelTensor& tensor) {
  return tensor.shape.numel() * static_cast<std::int64_t>(byte_size(tensor.dtype)) * 8;
}

// Null: high precision.
std::int64_t stored_bits(const ModelTensor& tensor, const Scheme* scheme, const QuantizationRules& rules) {
  if (scheme == nullptr) return high_precision_bits(tensor);
  const OperandScheme& weights = scheme->weights;
  const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
  double bits = bits_per_weight(weights, columns) * static_cast<double>(rows * columns);
  if (!weights.blocks && weights.scale == ScaleForm::high_precision && weights.sharing != ScaleSharing::tensor) {
    const std::int64_t groups = weights.group_size > 0 ? rows * columns / weights.group_size : rows;
    const auto scale = static_cast<std::int64_t>(byte_size(rules.scale_dtype.value_or(tensor.dtype))) * 8;
    bits += static_cast<double>(groups * (scale - 16));  // bits_per_weight() counts 16
  }
  return static_cast<std::int64_t>(bits);
}

bool is_fixed(const ModelTensor& tensor, const QuantizationRules& rules) {
  if (tensor.embedding) return rules.embeddings != nullptr;
  if (std::ranges::any_of(rules.rules,
                          [&](const auto& rule) { return recipes::glob_matches(rule.first, tensor.layer); }))
    return true;
  if (std::ranges::any_of(rules.exclude, [&](const auto& p) { return recipes::glob_matches(p, tensor.layer); }))
    return true;
  if (!rules.experts && tensor.parameter->experts > 0) return true;
  return rules.kept != nullptr && !rules.kept(tensor).empty();
}

// Whether a layer stays in high precision whatever rules match it by a pattern, as in choose_schemes().
bool stays(const ModelTensor& tensor, const QuantizationRules& rules) {
  const auto matches = [&](const std::string& pattern) { return recipes::glob_matches(pattern, tensor.layer); };
  const bool named = std::ranges::any_of(rules.rules, [&](const auto& rule) { return rule.first == tensor.layer; });
  return (!named && std::ranges::any_of(rules.exclude, matches)) ||
         (rules.kept != nullptr && !rules.kept(tensor).empty());
}

// Bits of a tensor that the choice is not for.
std::int64_t fixed_bits(const ModelTensor& tensor, const QuantizationRules& rules) {
  const Scheme* scheme = nullptr;
  if (tensor.embedding)
    scheme = rules.embeddings;
  else if (!tensor.layer.empty() && (rules.experts || tensor.parameter->experts == 0) && !stays(tensor, rules))
    for (const auto& [pattern, other] : rules.rules)
      if (recipes::glob_matches(pattern, tensor.layer)) {
        scheme = other;
        break;
      }
  if (scheme != nullptr) scheme = fitting_scheme(*scheme, tensor.shape[1]);
  const bool fits = scheme != nullptr && shape_problem(scheme->weights, tensor.shape[0], tensor.shape[1]).empty();
  if (fits) return stored_bits(tensor, scheme, rules);
  // Norms are f32 in GGUF.
  return tensor.layer.empty() && !tensor.embedding ? tensor.shape.numel() * 32 : high_precision_bits(tensor);
}

std::string layer_of(const ModelTensor& tensor) {
  return tensor.name.substr(0, tensor.name.rfind('.'));
}

const Scheme* fitting(const Scheme* scheme, const ModelTensor& tensor) {
  return scheme == nullptr ? nullptr : fitting_scheme(*scheme, tensor.shape[1]);
}

constexpr std::int64_t kMeasuredTokens = 4096;

}  // namespace

Planner::Planner(const std::vector<ModelTensor>& tensors, const nn::ModelConfig& config, const QuantizationRules& rules,
                 const ExportFormat& format, const FolderReader* reader, const BitBudget& budget)
    : tensors_(tensors), config_(config), rules_(rules), format_(format), reader_(reader), budget_(budget) {
  std::map<std::string, std::size_t> known;
  for (const ModelTensor& tensor : tensors) {
    const bool chosen = tensor.embedding ? format.tied_embeddings && rules.embeddings == nullptr
                                         : !tensor.layer.empty() && !is_fixed(tensor, rules);
    const std::int64_t tensor_bytes = is_file() ? kGgufTensorBytes : kTensorBytes;
    fixed_bits_ += tensor_bytes * 8 + (chosen ? 0 : fixed_bits(tensor, rules));
    if (!chosen) continue;
    const auto [found, is_new] = known.try_emplace(group_name(tensor), groups_.size());
    if (is_new) groups_.emplace_back();
    groups_[found->second].tensors.push_back(&tensor);
    weights_ += tensor.shape.numel();
  }
  fixed_bits_ += 8 * (kFileBytes + budget_.tokenizer_bytes);
  for (Group& group : groups_) add_schemes(group);
  std::erase_if(groups_, [&](const Group& group) {
    if (group.schemes.size() > 1 || group.schemes.front() != nullptr) return false;
    for (const ModelTensor* tensor : group.tensors) {  // high precision alone
      fixed_bits_ += high_precision_bits(*tensor);
      weights_ -= tensor->shape.numel();
    }
    return true;
  });
  QUENCH_CHECK_AS(ErrorCode::bad_config, !groups_.empty(), "no layer of the model can be quantized by a budget");
  for (const Group& group : groups_) {
    std::vector<KnapsackOption>& options = options_.emplace_back(group.schemes.size());
    for (std::size_t i = 0; i < options.size(); ++i)
      for (const ModelTensor* tensor : group.tensors) options[i].size += stored_bits(*tensor, group.schemes[i], rules_);
  }
}

void Planner::add_costs(const Importance& importance) {
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (std::size_t t = 0; t < groups_[g].tensors.size(); ++t)
      add_costs(g, t, nullptr, importance.of(*groups_[g].tensors[t]), {});
}

void Planner::add_costs(nn::CausalLm& model, const CalibrationData& data) {
  const Sensitivity sensitivity(model, data);
  const ModuleMap modules = modules_of(model);
  LayerWalk walk(model, std::span(data.sequences).first(sensitivity.sequences()));
  std::set<const ModelTensor*> done;
  const auto add = [&](const auto& selects, const auto& gram_of) {
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (std::size_t t = 0; t < groups_[g].tensors.size(); ++t)
        if (const ModelTensor& tensor = *groups_[g].tensors[t]; selects(tensor) && done.insert(&tensor).second)
          add_costs(g, t, &sensitivity, sensitivity.inputs(tensor), gram_of(tensor));
  };
  for (std::int64_t layer = 0; layer < walk.layers(); ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    InputObservers observers(true);
    for (const auto& [name, module] : modules) {
      if (!name.starts_with(prefix)) continue;
      if (auto* linear = dynamic_cast<nn::Linear*>(module)) observers.observe(name, *linear);
      if (auto* experts = dynamic_cast<nn::ExpertLinear*>(module)) observers.observe(name, *experts);
    }
    walk.advance();
    add([&](const ModelTensor& tensor) { return tensor.layer.starts_with(prefix); },
        [&](const ModelTensor& tensor) { return observers.of(*tensor.parameter, matrix_of(tensor)).gram(); });
  }
  add([](const ModelTensor&) { return true; }, [](const ModelTensor&) { return Tensor(); });  // head and table
}

void Planner::add_costs(std::size_t g, std::size_t t, const Sensitivity* sensitivity, std::vector<float> importance,
                        const Tensor& gram) {
  Group& group = groups_[g];
  const ModelTensor& tensor = *group.tensors[t];
  const Tensor weight = tensor.value();
  const std::vector<ErrorWeights> weights =
      sensitivity != nullptr ? sensitivity->of(tensor) : std::vector{relative_weights(weight, importance)};
  if (weights.empty())
    QUENCH_LOG_WARN("{}: no calibration tokens reach it: its errors do not count in the budget", tensor.layer);
  if (!uses_importance(rules_)) importance.clear();
  for (std::size_t i = 0; i < group.schemes.size() && !weights.empty(); ++i)
    if (group.schemes[i] != nullptr)
      options_[g][i].cost += rounding_cost({.weight = weight,
                                            .scheme = group.schemes[i]->weights,
                                            .name = tensor.name,
                                            .weights = weights,
                                            .scale_dtype = rules_.scale_dtype,
                                            .importance = importance,
                                            .gram = gram});
  group.importance[t] = std::move(importance);
}

std::int64_t Planner::capacity() const {
  // Beyond what there is: no overflow.
  return budget_.bits > 0 ? static_cast<std::int64_t>(std::min(budget_.bits, 64.0) * static_cast<double>(weights_))
                          : std::min(budget_.bytes, std::int64_t{1} << 59) * 8 - fixed_bits_;
}

OptionChoice Planner::choose(std::string_view option) const {
  std::int64_t least = 0, most = 0;
  for (const auto& options : options_) {
    least += std::ranges::min(options, {}, &KnapsackOption::size).size;
    most += std::ranges::max(options, {}, &KnapsackOption::size).size;
  }
  auto chosen = choose_options(options_, capacity());
  const bool by_bits = budget_.bits > 0;
  const auto reached = [&](std::int64_t bits) {
    return by_bits ? fmt::format("{:.3f} bits", static_cast<double>(bits) / static_cast<double>(weights_))
                   : fmt::format("{:.3f} MB", static_cast<double>(bits + fixed_bits_) / 8e6);
  };
  QUENCH_CHECK_AS(ErrorCode::bad_config, chosen.has_value(),
                  "{}: no choice of schemes is within it: the smallest has {}, the largest {}{}", option,
                  reached(least), reached(most),
                  by_bits ? " a weight" : ", with what stays in high precision and the metadata");
  return std::move(*chosen);
}

OptionChoice Planner::search(nn::CausalLm& model, const CalibrationData& data, SchemePlan& plan,
                             const QuantizationProgress& progress) const {
  ChoiceSearch search{.groups = options_,
                      .capacity = capacity(),
                      .starts = estimated_choices(options_, capacity()),
                      .measure = {},
                      .trials = budget_.search_steps};
  std::vector<std::string> names(search.starts.size(), "the estimate");
  // The two largest.
  const auto add = [&](std::vector<std::pair<OptionChoice, std::string>> choices) {
    std::ranges::stable_sort(choices, std::ranges::greater(),
                             [&](const auto& choice) { return total_size(options_, choice.first); });
    if (choices.size() > 2) choices.resize(2);
    for (auto& [choice, name] : choices) {
      if (std::ranges::find(search.starts, choice) != search.starts.end()) continue;
      search.starts.push_back(std::move(choice));
      names.push_back(std::move(name));
    }
  };
  std::vector<std::pair<OptionChoice, std::string>> uniform, mixes;
  for (const Scheme* scheme : budget_.candidates)
    if (auto choice = scheme != nullptr ? uniform_choice(scheme) : std::nullopt; choice && fits(*choice))
      uniform.emplace_back(std::move(*choice), scheme->name);
  for (const Scheme& scheme : scheme_table())
    if (auto choice = is_file() && scheme.mix != nullptr ? mix_choice(scheme) : std::nullopt)
      mixes.emplace_back(std::move(*choice), scheme.name);
  add(std::move(uniform));
  add(std::move(mixes));
  if (auto between = neighbours_choice()) add({std::move(*between)});

  const OutputDivergence divergence(model, data, kMeasuredTokens);
  TriedWeights tried;
  OptionChoice now;
  std::uint64_t measured = 0;
  search.measure = [&](const OptionChoice& choice) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const Group& group = groups_[g];
      if (!now.empty() && now[g] == choice[g]) continue;
      for (std::size_t t = 0; t < group.tensors.size(); ++t)
        tried.set(*group.tensors[t], fitting(group.schemes[choice[g]], *group.tensors[t]), rules_, group.importance[t]);
    }
    now = choice;
    const double cost = divergence.measure();
    if (progress) progress(++measured, search.starts.size() + static_cast<std::size_t>(search.trials));
    return cost;
  };
  FoundChoice found = search_choice(search);
  plan.search = {.tokens = divergence.tokens(),
                 .start = names[found.start],
                 .start_divergence = found.start_cost,
                 .divergence = found.cost,
                 .trials = search.trials,
                 .taken = found.taken};
  return std::move(found.choice);
}

void Planner::describe(const OptionChoice& choice, SchemePlan& plan) const {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    plan.cost += options_[g][choice[g]].cost;
    for (const ModelTensor* tensor : groups_[g].tensors) {
      const Scheme* scheme = fitting(groups_[g].schemes[choice[g]], *tensor);
      plan.layers.push_back({layer_of(*tensor), scheme, stored_bits(*tensor, scheme, rules_), tensor->shape.numel()});
    }
  }
  const std::int64_t bits = total_size(options_, choice);
  plan.bits_per_weight = static_cast<double>(bits) / static_cast<double>(weights_);
  plan.bytes = (bits + fixed_bits_ + 7) / 8;
}

std::string Planner::group_name(const ModelTensor& tensor) const {
  if (tensor.embedding) return tensor.name;
  if (is_file()) return matrix_name(tensor, config_).value_or(tensor.name);
  const bool fuses = std::ranges::any_of(folder_readers(), [&](const FolderReader& one) {
    return (reader_ == nullptr || reader_ == &one) && one.fuses_layers && one.reads(format_);
  });
  return fuses ? fused_layer(tensor) : tensor.layer;
}

bool Planner::suits(const Scheme* scheme, const ModelTensor& tensor) const {
  if (scheme == nullptr) return !tensor.embedding;
  const Quantizer& quantizer = rules_.quantizer != nullptr ? *rules_.quantizer : quantizers().front();
  const Scheme* fits = fitting(scheme, tensor);
  return fits != nullptr && quantizer.problem(*fits).empty() &&
         shape_problem(fits->weights, tensor.shape[0], tensor.shape[1]).empty();
}

// Candidates that suit all layers of the group, without those whose place another takes.
void Planner::add_schemes(Group& group) {
  for (const Scheme* scheme : budget_.candidates) {
    if (!std::ranges::all_of(group.tensors, [&](const ModelTensor* tensor) { return suits(scheme, *tensor); }))
      continue;
    const Scheme* fits = fitting(scheme, *group.tensors.front());
    if (std::ranges::find(group.schemes, fits) == group.schemes.end()) group.schemes.push_back(fits);
  }
  if (group.schemes.empty()) group.schemes.push_back(nullptr);
  group.importance.resize(group.tensors.size());
}

bool Planner::fits(const OptionChoice& choice) const {
  return total_size(options_, choice) <= capacity();
}

std::optional<std::pair<OptionChoice, std::string>> Planner::neighbours_choice() const {
  const Scheme *below_scheme = nullptr, *above_scheme = nullptr;
  OptionChoice below, above;
  for (const Scheme* scheme : budget_.candidates) {
    const auto choice = scheme != nullptr ? uniform_choice(scheme) : std::nullopt;
    if (!choice) continue;
    const std::int64_t size = total_size(options_, *choice);
    if (size <= capacity() && (below.empty() || size > total_size(options_, below))) {
      below = *choice;
      below_scheme = scheme;
    }
    if (size > capacity() && (above.empty() || size < total_size(options_, above))) {
      above = *choice;
      above_scheme = scheme;
    }
  }
  if (below.empty() || above.empty()) return std::nullopt;
  std::vector<std::vector<KnapsackOption>> two;
  for (std::size_t g = 0; g < groups_.size(); ++g) two.push_back({options_[g][below[g]], options_[g][above[g]]});
  OptionChoice choice;
  const auto taken = choose_options(two, capacity());
  for (std::size_t g = 0; taken && g < groups_.size(); ++g) choice.push_back((*taken)[g] == 0 ? below[g] : above[g]);
  if (!taken) return std::nullopt;
  return std::pair(std::move(choice), fmt::format("{} and {}", below_scheme->name, above_scheme->name));
}

std::optional<OptionChoice> Planner::uniform_choice(const Scheme* scheme) const {
  OptionChoice choice;
  for (const Group& group : groups_) {
    const auto found = std::ranges::find(group.schemes, fitting(scheme, *group.tensors.front()));
    if (found == group.schemes.end()) return std::nullopt;
    choice.push_back(static_cast<std::size_t>(found - group.schemes.begin()));
  }
  return choice;
}

std::optional<OptionChoice> Planner::mix_choice(const Scheme& mix) const {
  QuantizationRules rules = rules_;
  rules.scheme = &mix;
  rules.mixed.clear();
  try {
    choose_mixed_types(rules, tensors_, config_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_config) throw;
    return std::nullopt;  // a type needs an importance matrix
  }
  OptionChoice choice;
  for (const Group& group : groups_) {
    const ModelTensor& tensor = *group.tensors.front();
    const auto mixed = rules.mixed.find(tensor.layer);
    const Scheme* scheme = tensor.embedding ? rules.embeddings : mixed != rules.mixed.end() ? mixed->second : nullptr;
    const auto found = std::ranges::find(group.schemes, fitting(scheme, tensor));
    if (scheme == nullptr || found == group.schemes.end()) return std::nullopt;
    choice.push_back(static_cast<std::size_t>(found - group.schemes.begin()));
  }
  return fits(choice) ? std::optional(std::move(choice)) : std::nullopt;
}

}  // namespace quench
