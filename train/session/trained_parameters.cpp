#include "train/session/trained_parameters.h"

#include <algorithm>

#include "core/system/key_error.h"
#include "core/system/nearest_name.h"
#include "recipes/convert.h"
#include "train/metrics/step_metrics.h"

namespace quench {
namespace {

bool matches_name(std::span<const std::string> patterns, std::string_view name) {
  return std::ranges::any_of(patterns,
                             [&](const std::string& pattern) { return recipes::glob_matches(pattern, name); });
}

std::string shortened(const std::vector<std::string>& names, std::size_t shown) {
  const std::size_t count = std::min(names.size(), shown);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), ", "));
  if (names.size() > count) text += fmt::format(" and {} more", names.size() - count);
  return text;
}

// The closest name of the model, layer numbers as "*"; a misspelled component of the pattern is replaced.
std::string nearest_parameter(const std::string& pattern, std::span<const nn::Parameter* const> parameters) {
  std::vector<std::string> names, components;
  for (const nn::Parameter* parameter : parameters)
    for (const nn::ParameterPiece& piece : parameter->pieces)
      if (std::string name = recipes::without_index(piece.hf_name); std::ranges::find(names, name) == names.end())
        names.push_back(std::move(name));
  constexpr std::string_view kTable = "model.embed_tokens.weight";
  if (recipes::glob_matches(pattern, fmt::format("{}.weight", nn::kHeadName)) &&
      std::ranges::find(names, kTable) != names.end())
    return fmt::format("{} (the head is tied to it)", kTable);
  const auto split = [](std::string_view text, const auto& visit) {
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find('.', begin), text.size());
      visit(begin, text.substr(begin, end - begin));
      begin = end + 1;
    }
  };
  for (const std::string& name : names)
    split(name, [&](std::size_t, std::string_view component) {
      if (std::ranges::find(components, component) == components.end()) components.emplace_back(component);
    });
  std::string corrected = pattern;
  split(pattern, [&](std::size_t begin, std::string_view component) {
    const std::string near = nearest_name(component, components);
    if (near.empty() || near == component || corrected.size() != pattern.size() ||
        component.find_first_of("*?") != std::string_view::npos)
      return;
    corrected.replace(begin, component.size(), near);
  });
  if (corrected != pattern && std::ranges::any_of(parameters, [&](const nn::Parameter* parameter) {
        return matches_any(std::span(&corrected, 1), *parameter);
      }))
    return corrected;
  return *std::ranges::min_element(names, {}, [&](const std::string& name) { return edit_distance(pattern, name); });
}

std::vector<const nn::Parameter*> own_parameters(nn::CausalLm& model) {
  std::vector<const nn::Parameter*> own;
  for (const nn::Parameter* parameter : model.parameters())
    if (!parameter->adapter) own.push_back(parameter);
  return own;
}

void freeze(nn::Parameter& parameter) {
  parameter.variable = nn::Variable(parameter.variable.value());
  parameter.frozen = true;
}

}  // namespace

bool matches_any(std::span<const std::string> patterns, const nn::Parameter& parameter) {
  return matches_name(patterns, parameter.name) ||
         std::ranges::any_of(parameter.pieces,
                             [&](const nn::ParameterPiece& piece) { return matches_name(patterns, piece.hf_name); });
}

std::optional<std::size_t> first_match(std::span<const ParameterPatterns> lists, const nn::Parameter& parameter) {
  const auto match_of = [&](const std::string& name) {
    const auto found = std::ranges::find_if(lists, [&](const ParameterPatterns& list) {
      return matches_name(list.patterns, parameter.name) || matches_name(list.patterns, name);
    });
    return static_cast<std::size_t>(found - lists.begin());
  };
  const std::size_t first = match_of(parameter.pieces.empty() ? parameter.name : parameter.pieces.front().hf_name);
  std::vector<std::string> same, others;
  std::size_t other = first;
  for (const nn::ParameterPiece& piece : parameter.pieces) {
    const std::size_t match = match_of(piece.hf_name);
    if (match != first) other = match;
    (match == first ? same : others).push_back(piece.hf_name);
  }
  const bool first_is_chosen = first < other;
  QUENCH_CHECK_KEY(ErrorCode::bad_config, lists[std::min({first, other, lists.size() - 1})].key, others.empty(),
                   "matches {}, but not {}, which are one parameter here ({}); match all of its pieces, or none",
                   shortened(first_is_chosen ? same : others, 3), shortened(first_is_chosen ? others : same, 3),
                   parameter.name);
  return first < lists.size() ? std::optional(first) : std::nullopt;
}

void require_matches(const ParameterPatterns& list, std::span<const nn::Parameter* const> parameters,
                     std::string_view what) {
  for (const std::string& pattern : list.patterns) {
    const bool found = std::ranges::any_of(
        parameters, [&](const nn::Parameter* parameter) { return matches_any(std::span(&pattern, 1), *parameter); });
    QUENCH_CHECK_KEY(ErrorCode::bad_config, list.key, found, "'{}' matches no {} of this model; the nearest name is {}",
                     pattern, what, nearest_parameter(pattern, parameters));
  }
}

ParameterGroups::ParameterGroups(nn::CausalLm& model, const OptimizerSection& optimizer)
    : lr_(optimizer.lr), groups_(optimizer.groups) {
  for (std::size_t i = 0; i < groups_.size(); ++i)
    lists_.push_back({fmt::format("optimizer.groups[{}].match", i), groups_[i].match});
  std::vector<const nn::Parameter*> trained;
  for (const nn::Parameter* parameter : model.parameters())
    if (parameter->variable.requires_grad()) trained.push_back(parameter);
  if (model.is_whole())
    for (const ParameterPatterns& list : lists_) require_matches(list, trained, "trained parameter");
  for (const nn::Parameter* parameter : trained) (void)group_of(*parameter);
}

const ParameterGroup* ParameterGroups::group_of(const nn::Parameter& parameter) const {
  if (groups_.empty()) return nullptr;
  const std::optional<std::size_t> group = first_match(lists_, parameter);
  return group ? &groups_[*group] : nullptr;
}

double ParameterGroups::lr_scale(const nn::Parameter& parameter) const {
  const ParameterGroup* group = group_of(parameter);
  if (group == nullptr) return 1;
  if (group->lr) return lr_ > 0 ? *group->lr / lr_ : 0;
  return group->lr_scale.value_or(1);
}

std::optional<double> ParameterGroups::weight_decay(const nn::Parameter& parameter) const {
  const ParameterGroup* group = group_of(parameter);
  return group != nullptr ? group->weight_decay : std::nullopt;
}

bool ParameterGroups::scales() const {
  return std::ranges::any_of(groups_, [](const ParameterGroup& group) { return group.lr || group.lr_scale; });
}

std::string ParameterGroups::describe(nn::CausalLm& model) const {
  std::vector<std::int64_t> elements(groups_.size());
  for (const nn::Parameter* parameter : model.parameters())
    if (const ParameterGroup* group = parameter->variable.requires_grad() ? group_of(*parameter) : nullptr)
      elements[static_cast<std::size_t>(group - groups_.data())] += parameter->numel();
  std::string text;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const ParameterGroup& group = groups_[i];
    text += fmt::format(
        "optimizer.groups[{}]: lr {:.4g}{}, {} parameters\n", i, group.lr.value_or(lr_ * group.lr_scale.value_or(1)),
        group.weight_decay ? fmt::format(", weight decay {:g}", *group.weight_decay) : "", format_count(elements[i]));
  }
  return text;
}

void freeze_parameters(nn::CausalLm& model, const TrainingSection& training) {
  if (training.freeze.empty() && training.train.empty()) return;
  const ParameterPatterns frozen{"training.freeze", training.freeze}, trained{"training.train", training.train};
  const std::vector<const nn::Parameter*> own = own_parameters(model);
  if (model.is_whole()) {
    require_matches(frozen, own);
    require_matches(trained, own);
  }
  for (nn::Parameter* parameter : model.parameters()) {
    const bool excluded = first_match(std::span(&frozen, 1), *parameter).has_value();
    const bool chosen = training.train.empty() || first_match(std::span(&trained, 1), *parameter).has_value();
    if (excluded || !chosen) freeze(*parameter);
  }
  model.visit([](const std::string&, nn::Module& module) {
    auto* linear = dynamic_cast<nn::Linear*>(&module);
    if (linear == nullptr || !linear->weight().frozen) return;
    for (const nn::KernelParameter& own_of_kernel : linear->kernel().parameters()) freeze(*own_of_kernel.parameter);
  });
  QUENCH_CHECK_KEY(ErrorCode::bad_config, training.train.empty() ? "training.freeze" : "training.train",
                   trained_elements(model) > 0, "no parameter is left to train{}: {}",
                   model.is_whole() ? "" : fmt::format(" in the pipeline stage of layer {}", model.chunks()[0].begin),
                   training.train.empty() ? "the patterns match all of them"
                                          : "all that the patterns match are in training.freeze or have no gradient");
}

std::int64_t trained_elements(nn::CausalLm& model) {
  std::int64_t count = 0;
  for (const nn::Parameter* parameter : model.parameters())
    if (parameter->variable.requires_grad()) count += parameter->numel();
  return count;
}

std::string describe_frozen(nn::CausalLm& model) {
  constexpr std::size_t kShown = 8;
  struct Kind {
    std::string name;
    std::int64_t all = 0, frozen = 0;
  };
  std::vector<Kind> kinds;
  std::int64_t all = 0;
  for (const nn::Parameter* parameter : model.parameters()) {
    all += parameter->numel();
    for (const nn::ParameterPiece& piece : parameter->pieces) {
      const std::string name = recipes::without_index(piece.hf_name);
      auto kind = std::ranges::find(kinds, name, &Kind::name);
      if (kind == kinds.end()) kind = kinds.insert(kinds.end(), Kind{.name = name});
      ++kind->all;
      kind->frozen += parameter->frozen ? 1 : 0;
    }
  }
  std::vector<std::string> frozen;
  for (const Kind& kind : kinds)
    if (kind.frozen > 0)
      frozen.push_back(kind.frozen == kind.all ? kind.name
                                               : fmt::format("{} ({} of {})", kind.name, kind.frozen, kind.all));
  const std::int64_t trained = trained_elements(model);
  return fmt::format("trained: {} of {} parameters ({:.2f}%); frozen: {}", format_count(trained), format_count(all),
                     100.0 * static_cast<double>(trained) / static_cast<double>(all), shortened(frozen, kShown));
}

}  // namespace quench
