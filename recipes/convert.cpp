#include "recipes/convert.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>

#include "core/system/key_error.h"
#include "nn/decoder/causal_lm.h"
#include "nn/experts/expert_linear.h"
#include "recipes/packed_linear.h"
#include "recipes/tied_head.h"

namespace quench::recipes {
namespace {

std::vector<std::string> names_of(const std::string& name, const auto& layer) {
  std::vector<std::string> names{name};
  for (const auto& part : layer.parts()) names.push_back(name.substr(0, name.rfind('.') + 1) + part.name);
  return names;
}

bool matches_layer(std::string_view pattern, const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [&](const std::string& name) { return glob_matches(pattern, name); });
}

// -1 outside the decoder layers.
std::int64_t stack_index(const std::string& name) {
  constexpr std::string_view kStack = "layers.";
  const std::size_t at = name.find(kStack);
  if (at == std::string::npos) return -1;
  std::int64_t index = 0;
  const char* first = name.data() + at + kStack.size();
  const auto [end, error] = std::from_chars(first, name.data() + name.size(), index);
  return error == std::errc() && end != first ? index : -1;
}

// Number of decoder layers; MTP layers, whose indices follow, do not count.
std::int64_t stack_size(nn::Module& root) {
  if (const auto* model = dynamic_cast<const nn::CausalLm*>(&root)) return model->config().num_hidden_layers;
  std::int64_t size = 0, first_mtp = std::numeric_limits<std::int64_t>::max();
  root.visit([&](const std::string& name, nn::Module& module) {
    const std::int64_t index = stack_index(name);
    size = std::max(size, index + 1);
    if (index >= 0 && dynamic_cast<const nn::MtpLayer*>(&module) != nullptr) first_mtp = std::min(first_mtp, index);
  });
  return std::min(size, first_mtp);
}

// "0-2, 5"; ascending.
std::string ranges_text(const std::vector<std::int64_t>& indices) {
  std::string text;
  for (std::size_t first = 0, last = 0; first < indices.size(); first = ++last) {
    while (last + 1 < indices.size() && indices[last + 1] == indices[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", indices[first]);
    if (last > first) text += fmt::format("-{}", indices[last]);
  }
  return text;
}

std::string bytes_text(std::int64_t bytes) {
  const auto number = static_cast<double>(bytes);
  return bytes >= std::int64_t{1} << 20 ? fmt::format("{:.1f} MiB", number / (1 << 20))
         : bytes >= 1024                ? fmt::format("{:.1f} KiB", number / 1024)
                                        : fmt::format("{} B", bytes);
}

std::string_view words(SavedInput::Form form) {
  switch (form) {
    case SavedInput::Form::input: return "the input";
    case SavedInput::Form::saved_by_producer: return "scales; its producer keeps the input";
    case SavedInput::Form::recomputed: return "scales; the input is recomputed";
    case SavedInput::Form::codes: return "8-bit codes";
    case SavedInput::Form::layer_recomputed: return "the layer is recomputed";
  }
  return "";
}

// "  keeps 4.0 MiB (8-bit codes), 8.0 MiB in high precision"
std::string kept_text(const LayerConversion& layer) {
  if (!layer.kept) return {};
  return fmt::format("  keeps {} ({}), {} in high precision", bytes_text(layer.kept->bytes), words(layer.kept->form),
                     bytes_text(layer.kept_in_high_precision.bytes));
}

std::string unfit_layers(const std::vector<LayerConversion>& layers) {
  using Key = std::tuple<std::string, std::int64_t, std::string>;
  std::map<Key, std::vector<std::int64_t>> indices;
  for (const LayerConversion& layer : layers)
    if (layer.unfit)
      indices[{without_index(layer.name), layer.in_features, layer.skipped_because}].push_back(stack_index(layer.name));
  std::string text;
  for (const auto& [key, numbers] : indices) {
    const auto& [name, in, reason] = key;
    const std::string where = numbers.front() < 0 ? "" : fmt::format(" in layers {}", ranges_text(numbers));
    text += fmt::format("  {}{}, {} inputs: {}\n", name, where, in, reason);
  }
  return text;
}

// Layers that a filter leaves to the recipe.
class LayerChoice {
 public:
  // Throws bad_config if none of the `layers` decoder layers is left.
  LayerChoice(const LayerFilter& filter, std::int64_t layers)
      : filter_(filter), layers_(layers), include_used_(filter.include.size()), exclude_used_(filter.exclude.size()) {
    const std::int64_t skipped = filter.skip_first_layers + filter.skip_last_layers;
    QUENCH_CHECK_KEY(ErrorCode::bad_config, "recipe.filter.skip_first_layers", skipped == 0 || skipped < layers,
                     "{} and skip_last_layers {} leave none of {} layers to the recipe", filter.skip_first_layers,
                     filter.skip_last_layers, layers);
  }

  // Reason of a skip; empty: not skipped.
  [[nodiscard]] std::string left_out(const std::string& name, const std::vector<std::string>& names) {
    const bool included = filter_.include.empty() || matches_any(filter_.include, include_used_, names);
    const bool excluded = matches_any(filter_.exclude, exclude_used_, names);
    if (!included) return "not in recipe.filter.include";
    if (excluded) return "in recipe.filter.exclude";
    const std::int64_t at = stack_index(name);
    if (at >= 0 && at < filter_.skip_first_layers) return "among recipe.filter.skip_first_layers";
    if (at < layers_ && at >= layers_ - filter_.skip_last_layers && at >= 0)
      return "among recipe.filter.skip_last_layers";
    return {};
  }

  // Throws bad_config for a pattern that matched no layer.
  void require_used() const {
    require_used(filter_.include, include_used_, "recipe.filter.include");
    require_used(filter_.exclude, exclude_used_, "recipe.filter.exclude");
  }

 private:
  static bool matches_any(const std::vector<std::string>& patterns, std::vector<bool>& used,
                          const std::vector<std::string>& names) {
    bool any = false;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (!matches_layer(patterns[i], names)) continue;
      used[i] = any = true;
    }
    return any;
  }
  static void require_used(const std::vector<std::string>& patterns, const std::vector<bool>& used,
                           const std::string& key) {
    for (std::size_t i = 0; i < patterns.size(); ++i)
      // Accepts "lm_head" without a match: a tied head that the recipe does not convert.
      QUENCH_CHECK_KEY(ErrorCode::bad_config, key, used[i] || glob_matches(patterns[i], nn::kHeadName),
                       "'{}' matches no linear layer of this model", patterns[i]);
  }

  const LayerFilter& filter_;
  std::int64_t layers_;
  std::vector<bool> include_used_, exclude_used_;
};

LayerConversion row_of(const std::string& name, const nn::LinearInfo& info) {
  return {name, info.in_features, info.out_features, {}, {}, {}};
}

void take_reason(const auto& plan, LayerConversion& row) {
  row.skipped_because = plan.skipped_because;
  row.unfit = plan.kernel == nullptr;
  row.unfit_key = plan.key;
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view text) noexcept {
  // One backtracking point: at most quadratic.
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == text[t] || pattern[p] == '?')) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

const LayerRule* find_rule(std::span<const LayerRule> rules, std::string_view layer) noexcept {
  const auto found =
      std::ranges::find_if(rules, [&](const LayerRule& rule) { return glob_matches(rule.pattern, layer); });
  return found == rules.end() ? nullptr : &*found;
}

void require_matches(std::span<const LayerRule> rules, std::span<const std::string> layers) {
  for (const LayerRule& rule : rules)
    if (std::ranges::none_of(layers, [&](const std::string& layer) { return glob_matches(rule.pattern, layer); }))
      throw KeyError(ErrorCode::bad_config, "recipe.rules",
                     fmt::format("'{}={}' matches no layer of the model", rule.pattern,
                                 rule.scheme.empty() ? "none" : rule.scheme));
}

namespace {

// Options under the rule of a layer; nullopt: high precision.
std::optional<RecipeOptions> under_rules(const nn::LinearInfo& layer, const RecipeOptions& options) {
  if (options.rules.empty() || options.gguf_types != nullptr) return options;  // the types are the rules'
  std::vector<nn::LinearPart> parts = layer.parts;
  if (parts.empty()) parts.push_back({layer.name, layer.out_features});
  const LayerRule* const rule = find_rule(options.rules, parts.front().name);
  for (const nn::LinearPart& part : parts) {
    const LayerRule* const other = find_rule(options.rules, part.name);
    if ((other == nullptr) == (rule == nullptr) && (rule == nullptr || other->scheme == rule->scheme)) continue;
    throw KeyError(ErrorCode::bad_config, "recipe.rules",
                   fmt::format("{} and {} are one layer and have different schemes; give both the same",
                               parts.front().name, part.name));
  }
  if (rule == nullptr) return options;
  if (rule->scheme.empty()) return std::nullopt;
  RecipeOptions ruled = options;
  ruled.weight_bits = rule->bits;
  ruled.group_size = rule->group_size;
  ruled.asymmetric_weights = rule->mapping == IntMapping::asymmetric;
  ruled.weight_grid = has_few_levels(rule->mapping) ? rule->mapping : IntMapping::symmetric;
  return ruled;
}

constexpr const char* kByRule = "a rule of recipe.rules";

}  // namespace

std::vector<LayerConversion> apply_recipe(nn::Module& root, const Recipe& recipe, const LayerFilter& filter,
                                          const RecipeOptions& options) {
  std::vector<LayerConversion> report;
  LayerChoice choice(filter, stack_size(root));
  // A rule that names a layer in full takes precedence over the filter, as in exports.
  const auto left_out = [&](const std::string& name, const std::vector<std::string>& names) {
    std::string reason(choice.left_out(name, names));
    const bool named = std::ranges::any_of(options.rules, [&](const LayerRule& rule) {
      return std::ranges::find(names, rule.pattern) != names.end() && !rule.scheme.empty();
    });
    return named ? std::string() : reason;
  };
  // A skipped layer is reset to high precision.
  const auto convert = [&](const std::string& name, nn::Linear& linear) {
    const nn::LinearInfo info = linear.info(name);
    LayerConversion row = row_of(name, info);
    row.skipped_because = left_out(name, names_of(name, linear));
    LinearPlan plan;
    if (has_packed_weight(linear)) {
      plan.kernel = linear.shared_kernel();
      row.skipped_because = "its weight is stored quantized";
    } else if (row.skipped_because.empty()) {
      if (const auto ruled = under_rules(info, options)) {
        plan = recipe.plan(info, *ruled);
        take_reason(plan, row);
      } else {
        row.skipped_because = kByRule;
      }
      row.float8 = std::move(plan.float8);
    }
    linear.set_kernel(plan.kernel ? std::move(plan.kernel) : nn::high_precision_linear_kernel());
    row.kernel = linear.kernel().name();
    report.push_back(std::move(row));
  };
  const auto convert_experts = [&](const std::string& name, nn::ExpertLinear& layer) {
    const nn::LinearInfo info = layer.info(name);
    LayerConversion row = row_of(name, info);
    row.skipped_because = left_out(name, names_of(name, layer));
    row.experts = layer.experts();
    ExpertPlan plan;
    if (row.skipped_because.empty()) {
      const auto ruled = under_rules(info, options);
      if (!ruled)
        row.skipped_because = kByRule;
      else if (recipe.plan_experts != nullptr)
        plan = recipe.plan_experts(info, *ruled);
      else
        plan.skipped_because = fmt::format("{} has no grouped GEMMs for experts", recipe.name);
      if (ruled) take_reason(plan, row);
    }
    if (plan.kernel)
      std::ranges::copy_if(recipe.capabilities.float8, std::back_inserter(row.float8),
                           [&](LinearGemm gemm) { return std::ranges::count(options.high_precision, gemm) == 0; });
    layer.set_kernel(plan.kernel ? std::move(plan.kernel) : nn::high_precision_expert_kernel());
    row.kernel = layer.kernel().name();
    report.push_back(std::move(row));
  };
  const auto* model = dynamic_cast<const nn::CausalLm*>(&root);
  const bool whole = model == nullptr || model->is_whole();
  const bool tied = model != nullptr && model->config().tie_word_embeddings && !recipe.capabilities.float8.empty();
  // Only a converted head has a row: it is no layer of its own.
  const auto convert_tied_head = [&](const nn::Embedding& table) -> std::shared_ptr<const nn::EmbeddingKernel> {
    const std::string name(nn::kHeadName);
    if (!tied || !choice.left_out(name, {name}).empty()) return nullptr;
    const nn::LinearInfo info = table.info(name);
    LinearPlan plan = recipe.plan(info, options);
    if (plan.kernel == nullptr) return nullptr;
    LayerConversion row = row_of(name, info);
    row.kernel = plan.kernel->name();
    row.float8 = std::move(plan.float8);
    report.push_back(std::move(row));
    return tied_head(std::move(plan.kernel));
  };
  // The filter covers linear layers and a tied head; embeddings are converted by their own option.
  const auto convert_embedding = [&](const std::string& name, nn::Embedding& table) {
    EmbeddingPlan plan;
    if (recipe.plan_embedding != nullptr && plans_embedding(options, name)) {
      const nn::LinearInfo info = table.info(name);
      plan = recipe.plan_embedding(info, options);
      LayerConversion row = row_of(name, info);
      take_reason(plan, row);
      row.kernel = (plan.kernel ? *plan.kernel : *nn::high_precision_embedding_kernel()).name();
      report.push_back(std::move(row));
    }
    if (plan.kernel == nullptr) plan.kernel = convert_tied_head(table);
    table.set_kernel(plan.kernel ? std::move(plan.kernel) : nn::high_precision_embedding_kernel());
  };
  std::vector<std::string> layers;
  const auto add_names = [&](const std::string& name, const nn::LinearInfo& info) {
    if (info.parts.empty()) layers.push_back(name);
    for (const nn::LinearPart& part : info.parts) layers.push_back(part.name);
  };
  if (!options.rules.empty() && options.gguf_types == nullptr) {
    root.visit([&](const std::string& name, nn::Module& module) {
      if (auto* linear = dynamic_cast<nn::Linear*>(&module)) add_names(name, linear->info(name));
      if (auto* experts = dynamic_cast<nn::ExpertLinear*>(&module)) add_names(name, experts->info(name));
    });
    if (whole) require_matches(options.rules, layers);
  }
  root.visit([&](const std::string& name, nn::Module& module) {
    if (auto* table = dynamic_cast<nn::Embedding*>(&module)) convert_embedding(name, *table);
    if (auto* linear = dynamic_cast<nn::Linear*>(&module)) convert(name, *linear);
    if (auto* experts = dynamic_cast<nn::ExpertLinear*>(&module)) convert_experts(name, *experts);
  });
  if (whole) choice.require_used();
  return report;
}

void require_layers(const Recipe& recipe, const std::vector<LayerConversion>& layers) {
  const RequiredLayers required = recipe.capabilities.required;
  if (required == RequiredLayers::none) return;
  const auto unfit = std::ranges::count_if(layers, &LayerConversion::unfit);
  const auto named = std::ranges::find_if(layers, [](const LayerConversion& row) { return !row.unfit_key.empty(); });
  const std::string key(named == layers.end() ? "recipe.name" : named->unfit_key);
  const auto taken = std::ranges::count(layers, std::string(), &LayerConversion::skipped_because);
  QUENCH_CHECK_KEY(ErrorCode::bad_config, key, unfit == 0 || required != RequiredLayers::all,
                   "recipe {} cannot take {} of the {} layers that recipe.filter gives it:\n{}"
                   "change what the reasons name, or leave these layers out (recipe.filter.exclude, --recipe-exclude)",
                   recipe.name, unfit, taken + unfit, unfit_layers(layers));
  QUENCH_CHECK_KEY(ErrorCode::bad_config, key, taken > 0,
                   "recipe {} applies to no layer of the model, which would be trained in high precision:\n{}"
                   "change recipe.filter or what the reasons name, or choose recipe bf16",
                   recipe.name, conversion_report(layers));
}

std::string without_index(const std::string& name) {
  std::string result;
  for (std::size_t i = 0; i < name.size();) {
    if (std::isdigit(static_cast<unsigned char>(name[i])) == 0) {
      result += name[i++];
      continue;
    }
    while (i < name.size() && std::isdigit(static_cast<unsigned char>(name[i])) != 0) ++i;
    result += '*';
  }
  return result;
}

std::string conversion_report(const std::vector<LayerConversion>& layers) {
  using Key = std::tuple<std::string, std::int64_t, std::int64_t, std::string, std::string, std::string>;
  std::vector<Key> order;
  std::map<Key, std::vector<std::int64_t>> indices;
  std::map<std::string, std::size_t> of_name;
  std::int64_t kept = 0, in_high_precision = 0;
  for (const LayerConversion& layer : layers) {
    Key key{without_index(layer.name) + (layer.experts > 0 ? fmt::format(" of {} experts", layer.experts) : ""),
            layer.in_features,
            layer.out_features,
            layer.kernel,
            layer.skipped_because,
            kept_text(layer)};
    if (indices[key].empty()) order.push_back(key);
    indices[key].push_back(stack_index(layer.name));
    ++of_name[std::get<0>(key)];
    if (layer.kept) kept += layer.kept->bytes;
    if (layer.kept) in_high_precision += layer.kept_in_high_precision.bytes;
  }
  std::string text;
  for (const Key& key : order) {
    const auto& [name, in, out, kernel, reason, kept_of_one] = key;
    text += fmt::format("  {:<44} {:>6} -> {:<7} x{:<4} {}{}", name, in, out, indices[key].size(), kernel, kept_of_one);
    const bool all = indices[key].size() == of_name[name];
    text += reason.empty() ? "\n"
                           : fmt::format("  (skipped{}: {})\n", all ? "" : " in " + ranges_text(indices[key]), reason);
  }
  if (std::ranges::any_of(layers, [](const LayerConversion& layer) { return layer.kept.has_value(); }))
    text += fmt::format("  these layers keep {} of a micro-batch for the backward pass, {} in high precision\n",
                        bytes_text(kept), bytes_text(in_high_precision));
  return text;
}

}  // namespace quench::recipes
