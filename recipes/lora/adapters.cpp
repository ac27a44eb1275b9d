#include "recipes/lora/adapters.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/system/key_error.h"
#include "nn/decoder/causal_lm.h"
#include "recipes/lora/lora_linear.h"
#include "recipes/packed_linear.h"

namespace quench::recipes {
namespace {

// A Hugging Face layer within a linear layer.
struct Part {
  std::string name;   // full name
  std::string layer;  // last component
  std::int64_t row_begin;
  std::int64_t rows;
};

std::vector<Part> parts_of(const std::string& name, const nn::Linear& linear) {
  const std::size_t dot = name.rfind('.');
  const std::string parent = dot == std::string::npos ? std::string() : name.substr(0, dot + 1);
  if (linear.parts().empty()) return {{name, name.substr(parent.size()), 0, linear.weight().global_shape[0]}};
  std::vector<Part> parts;
  std::int64_t row = 0;
  for (const nn::LinearPart& part : linear.parts()) {
    parts.push_back({parent + part.name, part.name, row, part.rows});
    row += part.rows;
  }
  return parts;
}

// Linear layers of the decoder.
template <class Visitor>
void visit_linear(nn::Module& root, const Visitor& visitor) {
  root.visit([&](const std::string& name, nn::Module& module) {
    auto* linear = dynamic_cast<nn::Linear*>(&module);
    // The head's GEMMs belong to its loss (nn/decoder/causal_lm.h).
    if (linear != nullptr && name != nn::kHeadName) visitor(name, *linear);
  });
}

// `used`: all that match.
template <class Value>
std::optional<Value> first_match(const std::vector<std::pair<std::string, Value>>& patterns, const std::string& name,
                                 std::set<std::string>& used) {
  std::optional<Value> first;
  for (const auto& [pattern, value] : patterns) {
    if (!lora_pattern_matches(pattern, name)) continue;
    used.insert(pattern);
    if (!first) first = value;
  }
  return first;
}

// "model.layers.1.mlp.experts." of "model.layers.1.mlp.experts.down_proj".
std::string experts_prefix(const std::string& name, const nn::ExpertLinear& layer) {
  std::string decoder_layer = name;
  for (int level = 0; level < 3; ++level) decoder_layer.resize(decoder_layer.rfind('.'));
  return fmt::format("{}.{}.", decoder_layer, layer.hf_path());
}

template <class Visitor>
void visit_experts(nn::Module& root, const Visitor& visitor) {
  root.visit([&](const std::string& name, nn::Module& module) {
    if (auto* experts = dynamic_cast<nn::ExpertLinear*>(&module)) visitor(name, *experts);
  });
}

// Removes the adapters of one projection from `left`. Rank 0: none.
ExpertPiece take_piece(std::map<std::string, const LoraLayer*>& left, const std::string& prefix, std::int64_t experts,
                       const nn::LinearPart& part) {
  ExpertPiece piece{.layer = part.name, .rows = part.rows};
  const LoraLayer* first = nullptr;
  std::string without;  // an expert without adapter
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    const std::string name = fmt::format("{}{}.{}", prefix, expert, part.name);
    const auto found = left.find(name);
    if (found == left.end()) {
      without = name;
      continue;
    }
    if (first == nullptr) first = found->second;
    QUENCH_CHECK_AS(ErrorCode::bad_config, found->second->rank == first->rank && found->second->scale == first->scale,
                    "{} has rank {} and scale {}, {} rank {} and scale {}: the experts of a layer share them", name,
                    found->second->rank, found->second->scale, first->name, first->rank, first->scale);
    left.erase(found);
  }
  if (first == nullptr) return piece;
  QUENCH_CHECK_AS(ErrorCode::bad_config, without.empty(),
                  "{} has an adapter, {} has none: the experts of a layer all have one, or none", first->name, without);
  piece.rank = first->rank;
  piece.scale = static_cast<float>(first->scale);
  return piece;
}

template <class Patterns, class Name>
void require_used(const Patterns& patterns, const std::set<std::string>& used, const std::string& key,
                  std::string_view layers, const Name& name) {
  for (const auto& pattern : patterns)
    QUENCH_CHECK_KEY(ErrorCode::bad_config, key, used.contains(name(pattern)),
                     "'{}' matches none of the layers that {}", name(pattern), layers);
}

// "q_proj, k_proj, o_proj": distinct last components.
std::string last_components(const std::vector<LinearShape>& shapes) {
  std::vector<std::string_view> names;
  for (const LinearShape& shape : shapes) {
    const std::string_view name = std::string_view(shape.name).substr(shape.name.rfind('.') + 1);
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

bool lora_pattern_matches(std::string_view pattern, std::string_view layer) {
  if (pattern == layer || glob_matches(pattern, layer)) return true;
  return layer.size() > pattern.size() && layer.ends_with(pattern) && layer[layer.size() - pattern.size() - 1] == '.';
}

std::vector<LinearShape> adaptable_layers(nn::Module& root) {
  std::vector<LinearShape> shapes;
  visit_linear(root, [&](const std::string& name, nn::Linear& linear) {
    if (is_in_mtp_layer(root, name)) return;
    for (const Part& part : parts_of(name, linear))
      shapes.push_back({part.name, part.rows, linear.weight().global_shape[1]});
  });
  visit_experts(root, [&](const std::string& name, nn::ExpertLinear& layer) {
    if (is_in_mtp_layer(root, name)) return;
    const std::string prefix = experts_prefix(name, layer);
    for (std::int64_t expert = 0; expert < layer.experts(); ++expert)
      for (const nn::LinearPart& part : layer.parts())
        shapes.push_back(
            {fmt::format("{}{}.{}", prefix, expert, part.name), part.rows, layer.weight().global_shape[1]});
  });
  return shapes;
}

std::vector<LoraLayer> lora_layers(nn::Module& root, const LoraOptions& options) {
  std::vector<LoraLayer> layers;
  std::set<std::string> targets, ranks, alphas;
  const std::vector<LinearShape> shapes = adaptable_layers(root);
  for (const LinearShape& shape : shapes) {
    bool chosen = false;
    for (const std::string& target : options.targets) {
      if (!lora_pattern_matches(target, shape.name)) continue;
      targets.insert(target);
      chosen = true;
    }
    if (!chosen) continue;
    const std::int64_t rank = first_match(options.rank_pattern, shape.name, ranks).value_or(options.rank);
    const double alpha = first_match(options.alpha_pattern, shape.name, alphas).value_or(options.alpha);
    QUENCH_CHECK_KEY(ErrorCode::bad_config, "lora.rank", rank <= std::min(shape.in_features, shape.out_features),
                     "{} exceeds {} [{}, {}], whose update it could not make smaller", rank, shape.name,
                     shape.out_features, shape.in_features);
    const auto r = static_cast<double>(rank);
    layers.push_back({shape.name, rank, alpha / (options.rslora ? std::sqrt(r) : r)});
  }
  if (nn::is_part_of_model(root)) return layers;
  const auto itself = [](const std::string& pattern) { return pattern; };
  const auto key = [](const auto& entry) { return entry.first; };
  constexpr std::string_view kChosen = "lora.targets chooses";
  require_used(options.targets, targets, "lora.targets",
               fmt::format("can have an adapter: {}", last_components(shapes)), itself);
  require_used(options.rank_pattern, ranks, "lora.rank_pattern", kChosen, key);
  require_used(options.alpha_pattern, alphas, "lora.alpha_pattern", kChosen, key);
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "lora.targets", !layers.empty(), "empty: no layer gets an adapter");
  return layers;
}

Adapters::Adapters(nn::Module& root, const std::vector<LoraLayer>& layers, const LoraOptions& options,
                   const nn::ParameterOptions& parameters)
    : layers_(layers),
      options_(options),
      saved_(root, options.modules_to_save, parameters),
      tokens_(root, options.token_indices, parameters) {
  for (const TokenRows::Module& rows : tokens_.modules())
    for (const SavedModules::Module& copy : saved_.modules())
      QUENCH_CHECK_KEY(ErrorCode::bad_config, "lora.trainable_token_indices", rows.name != copy.name,
                       "lora.modules_to_save trains the whole {}; drop one of the two",
                       rows.name == nn::kHeadName ? "head" : "embedding");
  std::map<std::string, const LoraLayer*> left;
  for (const LoraLayer& layer : layers_) left.emplace(layer.name, &layer);
  const MemoryScope scope(MemoryCategory::parameters);
  visit_linear(root, [&](const std::string& name, nn::Linear& linear) {
    std::vector<nn::LowRankPiece> pieces;
    for (const Part& part : parts_of(name, linear)) {
      const auto found = left.find(part.name);
      if (found == left.end()) continue;
      pieces.push_back(
          {part.layer, part.row_begin, part.rows, 0, found->second->rank, static_cast<float>(found->second->scale)});
      left.erase(found);
    }
    if (pieces.empty()) return;
    entries_.push_back({name, &linear,
                        std::make_shared<nn::LowRankAdapter>(std::move(pieces), linear.weight().global_shape[1],
                                                             parameters, options_.dora, linear.weight().slice.split),
                        nullptr});
  });
  visit_experts(root, [&](const std::string& name, nn::ExpertLinear& layer) {
    std::vector<ExpertPiece> pieces;
    std::int64_t row = 0;
    for (const nn::LinearPart& part : layer.parts()) {
      ExpertPiece piece = take_piece(left, experts_prefix(name, layer), layer.experts(), part);
      piece.row_begin = std::exchange(row, row + part.rows);
      if (piece.rank > 0) pieces.push_back(std::move(piece));
    }
    if (pieces.empty()) return;
    QUENCH_CHECK_KEY(ErrorCode::bad_config, "lora.dora", !options_.dora,
                     "DoRA has no magnitudes for experts ({}); choose among the layers around them, for example "
                     "[\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\"], or train them with plain LoRA",
                     name);
    QUENCH_CHECK_KEY(ErrorCode::bad_config, "lora.dropout", options_.dropout == 0,
                     "{}, but the adapters of experts ({}) have none; set it to 0, or choose other layers",
                     options_.dropout, name);
    experts_.push_back({name, &layer, std::make_shared<ExpertAdapter>(layer, std::move(pieces), parameters), nullptr});
  });
  QUENCH_CHECK_AS(ErrorCode::bad_config, left.empty(), "{} is no linear layer of this model's decoder",
                  left.empty() ? "" : left.begin()->first);
}

void Adapters::attach() const {
  saved_.attach();
  tokens_.attach();
  for (const ExpertEntry& entry : experts_) {
    entry.base = entry.linear->shared_kernel();
    entry.linear->set_kernel(std::make_shared<LoraExperts>(entry.base, entry.adapter));
  }
  for (const Entry& entry : entries_) {
    entry.base = entry.linear->shared_kernel();
    std::shared_ptr<const nn::LinearKernel> kernel;
    if (options_.quantize_merged) kernel = entry.base->with_adapter(entry.adapter);
    QUENCH_CHECK_KEY(ErrorCode::bad_config, "lora.dora", !kernel || !options_.dora,
                     "{} quantizes the weight of {} with its update, but not with trained magnitudes; set "
                     "lora.quantize_merged to false",
                     entry.base->name(), entry.name);
    QUENCH_CHECK_KEY(ErrorCode::bad_config, "lora.dropout", !kernel || options_.dropout == 0,
                     "{}, but {} quantizes the weight of {} with its update, which leaves the adapter no input "
                     "of its own to drop; set it to 0, or lora.quantize_merged to false",
                     options_.dropout, entry.base->name(), entry.name);
    if (!kernel)
      kernel = std::make_shared<LoraLinear>(
          entry.base, entry.adapter,
          LoraDropout{options_.dropout, {.seed = options_.seed, .stream = hash64(entry.name + ".lora_dropout")}});
    entry.linear->set_kernel(std::move(kernel));
  }
}

void Adapters::detach() const {
  tokens_.detach();
  saved_.detach();
  for (const Entry& entry : entries_)
    if (entry.base) entry.linear->set_kernel(std::exchange(entry.base, nullptr));
  for (const ExpertEntry& entry : experts_)
    if (entry.base) entry.linear->set_kernel(std::exchange(entry.base, nullptr));
}

void Adapters::merge() const {
  detach();
  saved_.merge();
  tokens_.merge();
  for (const Entry& entry : entries_) {
    unpack_weight(*entry.linear);
    nn::Parameter& weight = entry.linear->weight();
    entry.adapter->merge_into(weight.variable.value());
    weight.mark_changed();
  }
  for (const ExpertEntry& entry : experts_) {
    entry.adapter->add_to(entry.linear->weight().variable.value());
    entry.linear->weight().mark_changed();
  }
}

void Adapters::merge_into(const nn::Parameter& weight, const Tensor& values, const nn::WholeRows& whole) const {
  saved_.merge_into(weight, values, whole);
  tokens_.merge_into(weight, values, whole);
  for (const Entry& entry : entries_)
    if (&entry.linear->weight() == &weight) return entry.adapter->merge_into(values, whole);
  for (const ExpertEntry& entry : experts_)
    if (&entry.linear->weight() == &weight) return entry.adapter->add_to(values, whole);
}

void Adapters::begin_from_base(const nn::WholeRows& whole) const {
  saved_.begin(whole);
  tokens_.begin(whole);
  for (const Entry& entry : entries_)
    if (entry.adapter->has_magnitudes())
      entry.adapter->set_magnitudes(nn::whole_weight(entry.linear->weight(), whole).acquire().value());
}

void Adapters::name_kernels(std::vector<LayerConversion>& layers) const {
  std::map<std::string_view, std::string_view> by_name;
  for (const Entry& entry : entries_) by_name.emplace(entry.name, entry.linear->kernel().name());
  for (const ExpertEntry& entry : experts_) by_name.emplace(entry.name, entry.linear->kernel().name());
  for (LayerConversion& layer : layers)
    if (const auto found = by_name.find(layer.name); found != by_name.end()) layer.kernel = found->second;
}

std::vector<std::pair<nn::Linear*, const nn::LowRankAdapter*>> Adapters::low_rank() const {
  std::vector<std::pair<nn::Linear*, const nn::LowRankAdapter*>> all;
  for (const Entry& entry : entries_) all.emplace_back(entry.linear, entry.adapter.get());
  return all;
}

std::vector<std::string> Adapters::adapted_experts() const {
  std::vector<std::string> names;
  for (const ExpertEntry& entry : experts_) names.push_back(entry.name);
  return names;
}

std::vector<nn::Parameter*> Adapters::parameters() const {
  std::vector<nn::Parameter*> all;
  for (const Entry& entry : entries_)
    for (const nn::KernelParameter& own : entry.adapter->parameters()) all.push_back(own.parameter);
  for (const ExpertEntry& entry : experts_)
    for (const nn::KernelParameter& own : entry.adapter->parameters()) all.push_back(own.parameter);
  for (const SavedModules::Module& module : saved_.modules()) all.push_back(module.copy);
  for (const TokenRows::Module& module : tokens_.modules()) all.push_back(module.rows);
  return all;
}

std::vector<AdapterTensor> Adapters::tensors(const Whole& whole) const {
  std::vector<AdapterTensor> all;
  const auto values_of = [&](const nn::Parameter& parameter) {
    return whole ? whole(parameter) : parameter.variable.value();
  };
  for (const Entry& entry : entries_) {
    const std::string parent = entry.name.substr(0, entry.name.rfind('.') + 1);
    const std::vector<nn::KernelParameter> own = entry.adapter->parameters();
    const auto& pieces = entry.adapter->pieces();
    const Tensor of_all_a = values_of(*own.front().parameter);
    const auto add = [&](std::size_t piece, AdapterPart part, nn::Parameter* parameter, const Tensor& value) {
      all.push_back({parent + pieces[piece].layer, part, value, parameter});
    };
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      nn::Parameter* const a = own.front().parameter;
      nn::Parameter* const b = own[i + 1].parameter;
      add(i, AdapterPart::a, a, of_all_a.narrow(0, pieces[i].rank_begin, pieces[i].rank));
      add(i, AdapterPart::b, b, values_of(*b));
      if (!entry.adapter->has_magnitudes()) continue;
      nn::Parameter* const magnitude = own[1 + pieces.size() + i].parameter;
      add(i, AdapterPart::magnitude, magnitude, values_of(*magnitude));
    }
  }
  for (const ExpertEntry& entry : experts_) {
    const ExpertAdapter& adapter = *entry.adapter;
    const std::string prefix = experts_prefix(entry.name, *entry.linear);
    for (std::size_t i = 0; i < adapter.pieces().size(); ++i)
      for (const auto& [part, parameter] :
           {std::pair{AdapterPart::a, &adapter.a(i)}, {AdapterPart::b, &adapter.b(i)}}) {
        const std::int64_t rows = parameter->global_shape[0] / adapter.experts();
        const Tensor of_all = values_of(*parameter);
        for (std::int64_t expert = 0; expert < adapter.experts(); ++expert)
          all.push_back({fmt::format("{}{}.{}", prefix, expert, adapter.pieces()[i].layer), part,
                         of_all.narrow(0, expert * rows, rows), parameter});
      }
  }
  for (const SavedModules::Module& module : saved_.modules())
    all.push_back({module.name, AdapterPart::module, values_of(*module.copy), module.copy});
  for (const TokenRows::Module& module : tokens_.modules())
    all.push_back({module.name, AdapterPart::tokens, values_of(*module.rows), module.rows});
  return all;
}

std::int64_t Adapters::parameter_count() const {
  std::int64_t count = 0;
  for (const nn::Parameter* parameter : parameters()) count += parameter->numel();
  return count;
}

void freeze_base(nn::Module& root) {
  for (nn::Parameter* parameter : root.parameters()) {
    if (parameter->adapter) continue;
    parameter->variable = nn::Variable(parameter->variable.value());
    parameter->in_checkpoints = false;
  }
}

}  // namespace quench::recipes
