#include "export/ptq/calibrated_model.h"

#include <algorithm>

#include "core/system/log.h"
#include "export/methods/tuned_weight.h"
#include "export/ptq/fuse_scales.h"
#include "export/ptq/layer_walk.h"
#include "export/ptq/observers.h"
#include "export/ptq/tune_block.h"

namespace quench {
namespace {

bool quantized(std::span<const QuantizedLayer> layers) {
  return std::ranges::any_of(layers, [](const QuantizedLayer& layer) { return layer.choice.scheme != nullptr; });
}

// Name prefix of a decoder layer.
std::string layer_prefix(std::int64_t layer) {
  return fmt::format("model.layers.{}.", layer);
}

class Calibration {
 public:
  Calibration(nn::CausalLm& model, std::vector<QuantizedLayer>& layers, const QuantizationRules& rules,
              const QuantizationProgress& progress)
      : model_(model),
        layers_(layers),
        rules_(rules),
        progress_(progress),
        quantizer_(rules.quantizer != nullptr ? *rules.quantizer : quantizers().front()),
        modules_(modules_of(model)),
        walk_(prepared(model), rules.calibration->sequences, quantizer_.tunes_blocks) {
    for (const QuantizedLayer& layer : layers_) total_ += static_cast<std::uint64_t>(layer.tensor->shape.numel());
  }

  void run() {
    for (std::int64_t i = 0; i < walk_.layers(); ++i) {
      gather_units([&](const nn::CausalLm::Unit& unit) { return unit.layer == i; });
      {
        InputObservers observers(with_gram());
        const std::string prefix = layer_prefix(i);
        bool any = false;
        for (const auto& [name, module] : modules_) {
          if (!name.starts_with(prefix)) continue;
          if (auto* linear = dynamic_cast<nn::Linear*>(module)) observers.observe(name, *linear);
          if (auto* experts = dynamic_cast<nn::ExpertLinear*>(module)) observers.observe(name, *experts);
        }
        for (const QuantizedLayer& layer : layers_)
          any = any || (layer.tensor->layer.starts_with(prefix) && layer.choice.scheme != nullptr);
        if (any) walk_.observe(observers);
        if (any && quantizer_.scales != nullptr) fuse_layer(i, observers);
        if (quantizer_.tunes_blocks) {
          observers.stop();
          walk_.advance_reference();
          if (any) tune_layer(i, observers);
        }
        quantize_with(prefix, observers);
      }
      walk_.advance();
      if (rules_.gather_unit) give_up_values(i);
    }
    gather_units([](const nn::CausalLm::Unit& unit) { return unit.layer < 0; });
    quantize_rest();
  }

 private:
  // Recipe kernels would change inputs.
  static nn::CausalLm& prepared(nn::CausalLm& model) {
    model.visit([](const std::string&, nn::Module& module) {
      if (auto* linear = dynamic_cast<nn::Linear*>(&module)) linear->set_kernel(nn::high_precision_linear_kernel());
      if (auto* experts = dynamic_cast<nn::ExpertLinear*>(&module))
        experts->set_kernel(nn::high_precision_expert_kernel());
    });
    return model;
  }

  template <class Choice>
  void gather_units(const Choice& choice) {
    if (!rules_.gather_unit) return;
    for (const nn::CausalLm::Unit& unit : model_.units())
      if (choice(unit)) rules_.gather_unit(unit.parameters);
  }

  // Written only quantized.
  void give_up_values(std::int64_t layer) {
    const std::string prefix = layer_prefix(layer);
    for_each_parameter([&](std::span<QuantizedLayer> group) {
      nn::Parameter& parameter = *group.front().tensor->parameter;
      if (!group.front().tensor->layer.starts_with(prefix) || group.size() != parameter.pieces.size()) return;
      if (!std::ranges::all_of(group, [](const QuantizedLayer& one) { return one.choice.scheme != nullptr; })) return;
      const Tensor values = parameter.variable.value();
      parameter.variable = nn::Variable(Tensor::empty({0}, values.dtype(), values.device()));
    });
  }

  // Rows of one parameter, in the order of `layers_`.
  template <class Body>
  void for_each_parameter(Body&& body) {
    for (std::size_t first = 0; first < layers_.size();) {
      const std::span group = same_parameter(layers_, first);
      body(group);
      first += group.size();
    }
  }

  void fuse_layer(std::int64_t layer, const InputObservers& observers) {
    for (const ScaleFusion& fusion :
         scale_fusions_of_layer(modules_, model_.config(), layer, quantizer_.scales_linear_outputs)) {
      nn::Parameter& parameter = fusion.consumer->weight();
      const Tensor values = values_of(parameter);
      std::vector<ScaledWeight> weights;
      for (const QuantizedLayer& one : layers_)
        if (one.tensor->parameter == &parameter)
          weights.push_back({one.tensor->name, values.narrow(0, one.tensor->piece->row_begin, one.tensor->piece->rows),
                             one.choice.scheme != nullptr ? &one.choice.scheme->weights : nullptr,
                             expert_of(*one.tensor)});
      InputStatistics& inputs = observers.of(parameter);
      const std::optional<Tensor> factors = quantizer_.scales(
          {weights, inputs, fusion.rows, rules_.scale_dtype.value_or(weights_dtype()), rules_.options.smoothing});
      if (factors) inputs.divide(fuse_scales(fusion, *factors));
    }
  }

  // Experts without tokens are left to quantize_with().
  void tune_layer(std::int64_t layer, const InputObservers& observers) {
    const std::string prefix = layer_prefix(layer);
    std::vector<BlockWeight> weights;
    for_each_parameter([&](std::span<QuantizedLayer> group) {
      if (!group.front().tensor->layer.starts_with(prefix)) return;
      share_amax(group, rules_);
      for (QuantizedLayer& one : group) {
        const InputStatistics& inputs = observers.of(*one.tensor->parameter, expert_of(*one.tensor));
        if (one.choice.scheme != nullptr && inputs.rows() > 0) weights.push_back({&one, importance_of(inputs)});
      }
    });
    tune_block(walk_, weights, rules_, static_cast<std::uint64_t>(layer));
  }

  [[nodiscard]] bool with_gram() const { return quantizer_.calibrated && !quantizer_.tunes_blocks; }
  [[nodiscard]] DType weights_dtype() const { return layers_.front().tensor->dtype; }

  void quantize_with(const std::string& prefix, const InputObservers& observers) {
    for_each_parameter([&](std::span<QuantizedLayer> group) {
      if (!group.front().tensor->layer.starts_with(prefix)) return;
      const nn::Parameter& parameter = *group.front().tensor->parameter;
      const auto experts = experts_of(parameter);
      share_amax(group, rules_);
      for (QuantizedLayer& layer : group) {
        const std::int64_t expert =
            experts > 0 ? layer.tensor->piece->row_begin / (parameter.global_shape[0] / experts) : 0;
        const InputStatistics& inputs = observers.of(parameter, expert);
        if (layer.choice.scheme != nullptr && inputs.rows() == 0) use_other_inputs(layer, observers, experts);
        quantize_one(layer, &inputs);
      }
      if (quantized(group)) use_quantized(model_, group);
    });
  }

  // For an expert without tokens.
  static void use_other_inputs(QuantizedLayer& layer, const InputObservers& observers, std::int64_t experts) {
    float most = 0;
    for (std::int64_t other = 0; other < experts; ++other)
      most = std::max(most, observers.of(*layer.tensor->parameter, other).amax());
    layer.input_amax = most;
    const auto& inputs = layer.choice.scheme->inputs;
    QUENCH_LOG_WARN("{}: no calibration tokens reach this expert; its weight is rounded to nearest{}",
                    layer.tensor->layer,
                    inputs && needs_input_scale(*inputs)
                        ? fmt::format(", and its input scale follows from the largest input of the layer's other "
                                      "experts ({:.4g})",
                                      most)
                        : "");
  }

  [[nodiscard]] std::int64_t experts_of(const nn::Parameter& parameter) const {
    for (const auto& [name, module] : modules_)
      if (auto* experts = dynamic_cast<nn::ExpertLinear*>(module);
          experts != nullptr && &experts->weight() == &parameter)
        return experts->experts();
    return 0;
  }

  // LM head on the final states.
  void quantize_rest() {
    for_each_parameter([&](std::span<QuantizedLayer> group) {
      if (!group.front().report.layer.empty()) return;
      InputStatistics inputs(group.front().tensor->shape[1], with_gram());
      if (quantized(group))
        for (const Tensor& states : walk_.final_states()) inputs.add(states, group.front().tensor->layer);
      share_amax(group, rules_);
      for (QuantizedLayer& layer : group) quantize_one(layer, &inputs);
      if (quantized(group)) use_quantized(model_, group);
    });
  }

  void quantize_one(QuantizedLayer& layer, const InputStatistics* inputs) {
    quantize_layer(layer, rules_, inputs);
    done_ += static_cast<std::uint64_t>(layer.tensor->shape.numel());
    if (progress_) progress_(done_, total_);
  }

  nn::CausalLm& model_;
  std::vector<QuantizedLayer>& layers_;
  const QuantizationRules& rules_;
  const QuantizationProgress& progress_;
  const Quantizer& quantizer_;
  ModuleMap modules_;
  LayerWalk walk_;
  std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace

void quantize_calibrated(nn::CausalLm& model, std::vector<QuantizedLayer>& layers, const QuantizationRules& rules,
                         const QuantizationProgress& progress) {
  Calibration(model, layers, rules, progress).run();
}

}  // namespace quench
