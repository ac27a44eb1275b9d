#pragma once
// Weights of a frozen model that processes hold in parts and in few bits, against those of one process: byte for byte,
// in so many operations.

#include "core/number/random.h"
#include "distributed/fsdp/gather_parameter.h"
#include "tests/distributed/gathered_codes.h"

namespace quench::testing {

struct GatheredBase {
  std::string form;  // name as in lora.base, or i8, i4, f4_e2m1: codes of a folder, with offsets
  DType dtype = DType::f32;
  std::int64_t operations = 0;  // for a layer

  void check(const distributed::Ranks& ranks, Device device) const {
    // Norms, scales and codes of a layer are small; no number of processes but one divides all of its rows.
    const nn::ModelConfig config = nn::parse_model_config(
        Json::parse(R"({"model_type": "qwen3", "vocab_size": 61, "num_hidden_layers": 3, "hidden_size": 64,
                        "intermediate_size": 192, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
                        "attention_bias": true})"),
        "the test");
    nn::ParameterOptions options{.dtype = dtype, .device = device, .trainable = false};
    nn::CausalLm whole(config, options);
    options.sharding = {ranks.shard->rank(), ranks.shard->size()};
    nn::CausalLm parts(config, options);
    recipes::QuantizedBase of_whole, of_parts;
    for (nn::CausalLm* model : {&whole, &parts}) model->initialize(7);
    store(whole, of_whole, {});
    store(parts, of_parts,
          [&](const nn::Parameter& parameter) { return distributed::gather_parameter(parameter, ranks); });
    const distributed::ShardedModel sharded(parts, ranks.shard, ranks.replicate, {.base = &of_parts});
    const auto count = [&] {
      return ranks.shard->traffic()[static_cast<std::size_t>(distributed::CollectiveKind::all_gather)].calls;
    };
    const auto expected = whole.units(), gathered = parts.units();
    for (std::size_t unit = 0; unit < expected.size(); ++unit) {
      const std::int64_t before = count();
      for (int twice = 0; twice < 2; ++twice)
        for (std::size_t i = 0; i < expected[unit].parameters.size(); ++i)
          expect_same_bytes(gathered[unit].parameters[i]->weight().acquire().value(),
                            expected[unit].parameters[i]->weight().acquire().value(),
                            fmt::format("{}, {}", gathered[unit].parameters[i]->name, form));
      const std::int64_t made = count() - before;
      QUENCH_CHECK_AS(ErrorCode::failed, expected[unit].layer < 0 || made == operations,
                      "{}: {} operations for a layer in {}, expected {}", gathered[unit].name, made, form, operations);
    }
  }

 private:
  void store(nn::CausalLm& model, recipes::QuantizedBase& base, const nn::WholeRows& gather) const {
    const std::optional<DType> codes_dtype = dtype_from_string(form);
    if (!codes_dtype)
      return base.store(model, form == "nf4" ? recipes::BaseForm::nf4 : recipes::BaseForm::float8, gather);
    model.visit([&](const std::string& name, nn::Module& module) {
      auto* linear = dynamic_cast<nn::Linear*>(&module);
      if (linear == nullptr || name == "lm_head") return;
      const Shape shape = linear->weight().global_shape;
      const Tensor codes = Tensor::empty(shape, *codes_dtype),
                   scales = Tensor::empty({shape[0], shape[1] / 32}, DType::f32),
                   offsets = Tensor::empty(scales.shape(), DType::f32);
      for (std::size_t i = 0; i < codes.nbytes(); ++i)
        static_cast<std::uint8_t*>(codes.raw_data())[i] = static_cast<std::uint8_t>(i * 7);
      for (std::int64_t i = 0; i < scales.numel(); ++i) {
        scales.data<float>()[i] = static_cast<float>(i + 1);
        offsets.data<float>()[i] = static_cast<float>(-i);
      }
      base.keep(linear->weight(),
                PackedMatrix(32, codes, scales, offsets).to(linear->weight().variable.value().device()), dtype);
    });
  }
};

}  // namespace quench::testing
