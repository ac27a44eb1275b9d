#include "export/budget/bit_budget.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/system/log.h"
#include "export/budget/knapsack.h"
#include "export/budget/sensitivity.h"
#include "export/budget/weight_error.h"
#include "export/imatrix/importance.h"
#include "export/ptq/fuse_scales.h"
#include "export/ptq/layer_walk.h"
#include "export/ptq/observers.h"
#include "export/table/fused_layers.h"
#include "recipes/convert.h"

namespace quench {
namespace {

// Upper bounds of what files hold next to values: GGUF names and pads each tensor and stores the vocabulary,
// safetensors name up to four tensors for a layer.
constexpr std::int64_t kFileBytes = 4096, kGgufTensorBytes = 160, kGgufTokenBytes = 40, kTensorBytes = 640;

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

// Layers of one scheme, and what each candidate costs.
struct Group {
  std::vector<const ModelTensor*> tensors;
  std::vector<const Scheme*> schemes;
  std::vector<KnapsackOption> options;  // sizes in bits
};

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

// Bits of a tensor that the choice is not for.
std::int64_t fixed_bits(const ModelTensor& tensor, const QuantizationRules& rules) {
  const Scheme* scheme = nullptr;
  if (tensor.embedding)
    scheme = rules.embeddings;
  else if (!tensor.layer.empty() && (rules.experts || tensor.parameter->experts == 0))
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

class Planner {
 public:
  Planner(const std::vector<ModelTensor>& tensors, const nn::ModelConfig& config, const QuantizationRules& rules,
          const ExportFormat& format, const FolderReader* reader, const BitBudget& budget)
      : config_(config), rules_(rules), format_(format), reader_(reader), budget_(budget) {
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
    fixed_bits_ += 8 * (kFileBytes + (is_file() ? kGgufTokenBytes * config.vocab_size : 0));
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
  }

  // Relative errors.
  void add_costs(const Importance& importance) {
    for (Group& group : groups_)
      for (const ModelTensor* tensor : group.tensors) add_costs(group, *tensor, nullptr, importance.of(*tensor), {});
  }

  // Expected divergences; layers run one after the other on the data.
  void add_costs(nn::CausalLm& model, const CalibrationData& data) {
    const Sensitivity sensitivity(model, data);
    const ModuleMap modules = modules_of(model);
    LayerWalk walk(model, std::span(data.sequences).first(sensitivity.sequences()));
    std::set<const ModelTensor*> done;
    for (std::int64_t layer = 0; layer < walk.layers(); ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      InputObservers observers(true);
      for (const auto& [name, module] : modules) {
        if (!name.starts_with(prefix)) continue;
        if (auto* linear = dynamic_cast<nn::Linear*>(module)) observers.observe(name, *linear);
        if (auto* experts = dynamic_cast<nn::ExpertLinear*>(module)) observers.observe(name, *experts);
      }
      walk.advance();
      for (Group& group : groups_)
        for (const ModelTensor* tensor : group.tensors)
          if (tensor->layer.starts_with(prefix) && done.insert(tensor).second)
            add_costs(group, *tensor, &sensitivity, sensitivity.inputs(*tensor),
                      observers.of(*tensor->parameter, matrix_of(*tensor)).gram());
    }
    for (Group& group : groups_)  // head and table
      for (const ModelTensor* tensor : group.tensors)
        if (!done.contains(tensor)) add_costs(group, *tensor, &sensitivity, {}, {});
  }

  [[nodiscard]] SchemePlan choose(std::string_view option, bool measured) const {
    std::vector<std::vector<KnapsackOption>> options;
    std::int64_t least = 0, most = 0;
    for (const Group& group : groups_) {
      options.push_back(group.options);
      least += std::ranges::min(group.options, {}, &KnapsackOption::size).size;
      most += std::ranges::max(group.options, {}, &KnapsackOption::size).size;
    }
    const bool by_bits = budget_.bits > 0;
    // Beyond what there is: no overflow.
    const std::int64_t capacity =
        by_bits ? static_cast<std::int64_t>(std::min(budget_.bits, 64.0) * static_cast<double>(weights_))
                : std::min(budget_.bytes, std::int64_t{1} << 59) * 8 - fixed_bits_;
    const auto chosen = choose_options(options, capacity);
    const auto reached = [&](std::int64_t bits) {
      return by_bits ? fmt::format("{:.3f} bits", static_cast<double>(bits) / static_cast<double>(weights_))
                     : fmt::format("{:.3f} MB", static_cast<double>(bits + fixed_bits_) / 8e6);
    };
    QUENCH_CHECK_AS(ErrorCode::bad_config, chosen.has_value(),
                    "{}: no choice of schemes is within it: the smallest has {}, the largest {}{}", option,
                    reached(least), reached(most),
                    by_bits ? " a weight" : ", with what stays in high precision and the metadata");
    SchemePlan plan{.measured = measured};
    std::int64_t bits = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const KnapsackOption& taken = groups_[g].options[(*chosen)[g]];
      bits += taken.size;
      plan.cost += taken.cost;
      for (const ModelTensor* tensor : groups_[g].tensors) {
        const Scheme* scheme = fitting(groups_[g].schemes[(*chosen)[g]], *tensor);
        plan.layers.push_back({layer_of(*tensor), scheme, stored_bits(*tensor, scheme, rules_), tensor->shape.numel()});
      }
    }
    plan.bits_per_weight = static_cast<double>(bits) / static_cast<double>(weights_);
    plan.bytes = (bits + fixed_bits_ + 7) / 8;
    return plan;
  }

 private:
  [[nodiscard]] bool is_file() const { return !format_.weights_file.empty(); }

  static std::string layer_of(const ModelTensor& tensor) { return tensor.name.substr(0, tensor.name.rfind('.')); }

  [[nodiscard]] std::string group_name(const ModelTensor& tensor) const {
    if (tensor.embedding) return tensor.name;
    if (is_file()) return matrix_name(tensor, config_).value_or(tensor.name);
    const bool fuses = std::ranges::any_of(folder_readers(), [&](const FolderReader& one) {
      return (reader_ == nullptr || reader_ == &one) && one.fuses_layers && one.reads(format_);
    });
    return fuses ? fused_layer(tensor) : tensor.layer;
  }

  static const Scheme* fitting(const Scheme* scheme, const ModelTensor& tensor) {
    return scheme == nullptr ? nullptr : fitting_scheme(*scheme, tensor.shape[1]);
  }

  [[nodiscard]] bool suits(const Scheme* scheme, const ModelTensor& tensor) const {
    if (scheme == nullptr) return !tensor.embedding;
    const Quantizer& quantizer = rules_.quantizer != nullptr ? *rules_.quantizer : quantizers().front();
    const Scheme* fits = fitting(scheme, tensor);
    return fits != nullptr && quantizer.problem(*fits).empty() &&
           shape_problem(fits->weights, tensor.shape[0], tensor.shape[1]).empty();
  }

  // Candidates that suit all layers of the group, without those whose place another takes.
  void add_schemes(Group& group) const {
    for (const Scheme* scheme : budget_.candidates) {
      if (!std::ranges::all_of(group.tensors, [&](const ModelTensor* tensor) { return suits(scheme, *tensor); }))
        continue;
      const Scheme* fits = fitting(scheme, *group.tensors.front());
      if (std::ranges::find(group.schemes, fits) == group.schemes.end()) group.schemes.push_back(fits);
    }
    if (group.schemes.empty()) group.schemes.push_back(nullptr);
    group.options.resize(group.schemes.size());
    for (std::size_t i = 0; i < group.schemes.size(); ++i)
      for (const ModelTensor* tensor : group.tensors)
        group.options[i].size += stored_bits(*tensor, group.schemes[i], rules_);
  }

  void add_costs(Group& group, const ModelTensor& tensor, const Sensitivity* sensitivity,
                 const std::vector<float>& importance, const Tensor& gram) const {
    const Tensor weight = tensor.value();
    const std::vector<ErrorWeights> weights =
        sensitivity != nullptr ? sensitivity->of(tensor) : std::vector{relative_weights(weight, importance)};
    if (weights.empty())
      QUENCH_LOG_WARN("{}: no calibration tokens reach it: its errors do not count in the budget", tensor.layer);
    for (std::size_t i = 0; i < group.schemes.size() && !weights.empty(); ++i)
      if (group.schemes[i] != nullptr)
        group.options[i].cost +=
            rounding_cost({.weight = weight,
                           .scheme = group.schemes[i]->weights,
                           .name = tensor.name,
                           .weights = weights,
                           .scale_dtype = rules_.scale_dtype,
                           .importance = uses_importance(rules_) ? std::span(importance) : std::span<const float>(),
                           .gram = gram});
  }

  const nn::ModelConfig& config_;
  const QuantizationRules& rules_;
  const ExportFormat& format_;
  const FolderReader* reader_;
  const BitBudget& budget_;
  std::vector<Group> groups_;
  std::int64_t weights_ = 0, fixed_bits_ = 0;
};

std::string_view name_of(const Scheme* scheme) {
  return scheme == nullptr ? "high precision" : std::string_view(scheme->name);
}

}  // namespace

SchemePlan plan_schemes(nn::CausalLm& model, const std::vector<ModelTensor>& tensors, const nn::ModelConfig& config,
                        const QuantizationRules& rules, const ExportFormat& format, const FolderReader* reader,
                        const BitBudget& budget, std::string_view option) {
  Planner planner(tensors, config, rules, format, reader, budget);
  (void)planner.choose(option, false);  // out of reach: before the costs
  const Importance importance =
      rules.imatrix.empty() ? Importance() : Importance(read_imatrix(rules.imatrix), tensors, config, rules.imatrix);
  if (rules.calibration != nullptr) {
    planner.add_costs(model, *rules.calibration);
    return planner.choose(option, true);
  }
  QUENCH_LOG_WARN(
      "{}: without calibration data the sensitivity of layers is not measured: the choice goes by the relative errors "
      "of their {}; name data (--calibration)",
      option, importance.defined() ? "outputs" : "weights");
  planner.add_costs(importance);
  return planner.choose(option, false);
}

void apply_plan(const SchemePlan& plan, QuantizationRules& rules) {
  std::map<std::string_view, std::int64_t> weights;
  std::int64_t most = 0;
  for (const PlannedLayer& layer : plan.layers) {
    if (layer.layer == "model.embed_tokens") {
      rules.embeddings = layer.scheme;
      continue;
    }
    rules.mixed[layer.layer] = layer.scheme;
    if (layer.scheme == nullptr) continue;
    const std::int64_t sum = weights[layer.scheme->name] += layer.weights;
    if (sum <= most) continue;
    most = sum;
    rules.scheme = layer.scheme;
  }
}

std::string to_text(const SchemePlan& plan) {
  struct Row {
    std::string layers;
    std::size_t count = 0;
    std::vector<std::pair<std::string_view, std::size_t>> schemes;
  };
  std::vector<Row> rows;
  for (const PlannedLayer& layer : plan.layers) {
    const std::string name = recipes::without_index(layer.layer);
    auto row = std::ranges::find(rows, name, &Row::layers);
    if (row == rows.end()) row = rows.insert(rows.end(), Row{name, 0, {}});
    ++row->count;
    const std::string_view scheme = name_of(layer.scheme);
    const auto same = std::ranges::find(row->schemes, scheme, &std::pair<std::string_view, std::size_t>::first);
    if (same == row->schemes.end())
      row->schemes.emplace_back(scheme, 1);
    else
      ++same->second;
  }
  std::string text =
      fmt::format("chosen: {:.3f} bits a weight, {} {:.4g}\n", plan.bits_per_weight,
                  plan.measured ? "expected KL divergence in nats a token" : "sum of relative errors", plan.cost);
  for (const Row& row : rows) {
    std::string schemes;
    for (const auto& [name, count] : row.schemes)
      schemes += fmt::format("{}{} {}", schemes.empty() ? "" : ", ", name, count);
    text += fmt::format("  {:<44} x{:<4} {}\n", row.layers, row.count, schemes);
  }
  return text;
}

Json to_json(const SchemePlan& plan) {
  Json json = Json::object(), layers = Json::object();
  for (const PlannedLayer& layer : plan.layers)
    layers.set(layer.layer, layer.scheme == nullptr ? Json() : Json(layer.scheme->name));
  json.set("bits_per_weight", plan.bits_per_weight);
  json.set("estimated_bytes", plan.bytes);
  json.set("cost", plan.cost);
  json.set("cost_unit", plan.measured ? "kl_nats_per_token" : "relative_error");
  json.set("layers", std::move(layers));
  return json;
}

}  // namespace quench
