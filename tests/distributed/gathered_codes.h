#pragma once
// Codes of weights that processes hold in parts, against those of the whole weights: byte for byte.

#include <cstring>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "core/ops/elementwise.h"
#include "core/ops/quantize/quantize.h"
#include "distributed/fsdp/sharded_model.h"
#include "distributed/ranks.h"
#include "nn/modules/linear.h"
#include "recipes/convert.h"

namespace quench::testing {

inline void expect_same_bytes(const Tensor& got, const Tensor& wanted, const std::string& what) {
  QUENCH_CHECK_AS(ErrorCode::failed, got.shape() == wanted.shape() && got.dtype() == wanted.dtype(), "{}: {} not {}",
                  what, got.describe(), wanted.describe());
  const Tensor a = got.clone().to(Device{}), b = wanted.clone().to(Device{});
  backend(got.device().type).synchronize(current_stream(got.device()));
  QUENCH_CHECK_AS(ErrorCode::failed, std::memcmp(a.raw_data(), b.raw_data(), a.nbytes()) == 0, "{}: other bytes", what);
}

struct GatheredCodes {
  std::string recipe;
  DType dtype = DType::f32;
  std::string sizes;  // members of config.json: hidden and intermediate size, heads

  void check(const distributed::Ranks& ranks, Device device) const {
    const nn::ModelConfig config = nn::parse_model_config(
        Json::parse(R"({"model_type": "llama", "vocab_size": 61, "num_hidden_layers": 2, )" + sizes + "}"), "the test");
    nn::ParameterOptions options{.dtype = dtype, .device = device};
    nn::CausalLm whole(config, options);
    options.sharding = {ranks.shard->rank(), ranks.shard->size()};
    nn::CausalLm parts(config, options);
    distributed::ShardedModel sharded(parts, ranks.shard, ranks.replicate, {});
    for (nn::CausalLm* model : {&whole, &parts}) {
      model->initialize(7);
      recipes::apply_recipe(*model, recipes::find_recipe(recipe), {.exclude = {"lm_head"}},
                            {.emulate = device.is_cpu(), .pad = true});
    }
    const std::vector<nn::Linear*> expected = layers(whole), gathered = layers(parts);
    for (int version = 0; version < 2; ++version) {
      for (std::size_t i = 0; i < expected.size(); ++i) check_layer(*gathered[i], *expected[i]);
      for (nn::CausalLm* model : {&whole, &parts})
        for (nn::Parameter* parameter : model->parameters()) {
          const Tensor value = parameter->variable.value();
          accumulate({.x = value.clone(), .out = value, .scale = 0.7f});
          parameter->mark_changed();
        }
      sharded.parameters_changed();
    }
  }

 private:
  static std::vector<nn::Linear*> layers(nn::CausalLm& model) {
    std::vector<nn::Linear*> all;
    model.visit([&](const std::string& name, nn::Module& module) {
      auto* linear = dynamic_cast<nn::Linear*>(&module);
      if (linear != nullptr && name != "lm_head") all.push_back(linear);
    });
    return all;
  }
  void check_layer(const nn::Linear& gathered, const nn::Linear& expected) const {
    const nn::Parameter &part = gathered.weight(), &whole = expected.weight();
    const nn::WeightFormats forms = gathered.kernel().weight_requirements(part).gathered;
    QUENCH_CHECK_AS(ErrorCode::failed, forms.forward && forms.backward, "{}: {} reads values", part.name, recipe);
    // Both at once, and each alone.
    const autograd::Weight weight = part.weight();
    const auto forward = weight.acquire_quantized(*forms.forward), backward = weight.acquire_quantized(*forms.backward);
    for (const auto& [use, form] : {std::pair(&forward, *forms.forward), std::pair(&backward, *forms.backward)}) {
      const std::string what = fmt::format("{} of {} under {}, by {}", part.name, whole.global_shape.to_string(),
                                           recipe, to_string(form.granularity));
      QUENCH_CHECK_AS(ErrorCode::failed, use->codes().defined(), "{}: no codes", what);
      const QuantTensor wanted = quantize_float8(
          whole.variable.value(),
          {.element = form.element, .granularity = form.granularity, .power_of_two_scale = form.power_of_two_scale});
      expect_same_bytes(use->codes().payload(), wanted.payload(), what);
      expect_same_bytes(use->codes().scales(), wanted.scales(), what + ", scales");
    }
    expect_same_bytes(weight.acquire().value(), whole.variable.value(), part.name + ", values");
  }
};

}  // namespace quench::testing
