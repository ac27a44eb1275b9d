// Schemes by a budget: sensitivity against measured divergences, budgets met and out of reach, layers of one scheme.

#include "export/budget/bit_budget.h"

#include <cmath>
#include <set>

#include "export/budget/output_divergence.h"
#include "export/budget/sensitivity.h"
#include "tests/export/export_testing.h"
#include "tests/train/metrics/captured_log.h"

namespace quench {
namespace {

using testing::CapturedLog;
using ::testing::HasSubstr;

struct Tiny {
  nn::ModelConfig config;
  nn::CausalLm model;
  std::vector<ModelTensor> tensors;
  QuantizationRules rules;
  std::int64_t search_steps = 0;

  explicit Tiny(const char* family = "LlamaForCausalLM", bool tied = false)
      : config(parsed(family, tied)), model(config, {.dtype = DType::f32, .trainable = false}) {
    model.initialize(3);
    // Wider than at the start of training: outputs depend on every layer.
    for (nn::Parameter* parameter : model.parameters())
      if (parameter->global_shape.rank() == 2)
        for (float& x :
             std::span(parameter->variable.value().data<float>(), static_cast<std::size_t>(parameter->numel())))
          x *= 5;
    tensors = model_tensors(model, DType::f32);
    CalibrationData data{.source = "test"};
    for (int s = 0; s < 16; ++s) {
      data.sequences.emplace_back();
      for (int i = 0; i < 48; ++i) data.sequences.back().push_back((5 * i * i + 17 * s) % 96);
    }
    rules.exclude.clear();
    rules.with_importance = true;
    rules.calibration = std::make_shared<CalibrationData>(std::move(data));
  }

  static nn::ModelConfig parsed(const char* family, bool tied) {
    Json json = Json::parse(R"({"vocab_size": 96, "intermediate_size": 96, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 64, "num_hidden_layers": 2, "hidden_size": 64})");
    json.set("architectures", Json(Json::Array{Json(family)}));
    json.set("tie_word_embeddings", tied);
    if (std::string_view(family) == "MixtralForCausalLM") {
      json.set("num_local_experts", std::int64_t{4});
      json.set("num_experts_per_tok", std::int64_t{2});
    }
    return nn::parse_model_config(json, "config.json");
  }

  [[nodiscard]] SchemePlan plan(std::string_view format, double bits, std::string_view names = {},
                                std::int64_t bytes = 0) {
    const ExportFormat& target = *export_formats().find(format);
    rules.scale_dtype = target.scale_dtype;
    BitBudget budget{bits, bytes, candidate_schemes(names, target, nullptr, true, "--scheme"), search_steps};
    rules.scheme = budget.candidates.front();
    return plan_schemes(model, tensors, config, rules, target, nullptr, budget, "--target");
  }

  // Log-probabilities of the next tokens.
  [[nodiscard]] std::vector<double> log_probabilities() {
    std::vector<double> all;
    const autograd::NoGrad no_grad;
    for (const auto& sequence : rules.calibration->sequences) {
      const auto tokens = static_cast<std::int64_t>(sequence.size());
      const Tensor ids = Tensor::from_values<std::int32_t>({tokens}, sequence);
      const Tensor logits = model.logits(model.hidden(ids, model.make_context({{0, tokens, 0, tokens}}, tokens)));
      for (std::int64_t row = 0; row < tokens; ++row) {
        const float* x = logits.data<float>() + row * 96;
        double sum = 0;
        for (int v = 0; v < 96; ++v) sum += std::exp(double{x[v]});
        for (int v = 0; v < 96; ++v) all.push_back(double{x[v]} - std::log(sum));
      }
    }
    return all;
  }
};

double divergence(const std::vector<double>& before, const std::vector<double>& after) {
  double sum = 0;
  for (std::size_t i = 0; i < before.size(); ++i) sum += std::exp(before[i]) * (before[i] - after[i]);
  return sum / static_cast<double>(before.size() / 96);
}

std::map<std::string, const Scheme*> by_layer(const SchemePlan& plan) {
  std::map<std::string, const Scheme*> schemes;
  for (const PlannedLayer& layer : plan.layers) schemes[layer.layer] = layer.scheme;
  return schemes;
}

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    return error.what();
  }
  return "nothing was refused";
}

// Small independent errors of one weight: the KL divergence of the outputs is the predicted one.
TEST(Sensitivity, PredictsTheDivergenceOfTheOutputs) {
  for (const char* family : {"LlamaForCausalLM", "MixtralForCausalLM"}) {
    Tiny tiny(family);
    const Sensitivity sensitivity(tiny.model, *tiny.rules.calibration);
    EXPECT_EQ(sensitivity.tokens(), 16 * 48);
    const std::vector<double> before = tiny.log_probabilities();
    int compared = 0;
    for (const ModelTensor& tensor : tiny.tensors) {
      if (tensor.layer.empty() || tensor.embedding) continue;
      // Errors before a router change its choice, at which no derivative looks.
      if (tiny.config.experts.count > 0 && !tensor.layer.starts_with("model.layers.1.block_sparse_moe")) continue;
      SCOPED_TRACE(tensor.name);
      const std::vector<ErrorWeights> weights = sensitivity.of(tensor);
      ASSERT_EQ(weights.size(), 1u);
      Tensor values = tensor.parameter->variable.value().narrow(0, tensor.piece->row_begin, tensor.piece->rows);
      const Tensor kept = values.clone();
      double predicted = 0, measured = 0;
      for (std::uint64_t draw = 0; draw < 3; ++draw) {
        for (std::int64_t i = 0; i < values.numel(); ++i) {
          const float error = 0.005f * random_normal({draw, hash64(tensor.name), 0}, static_cast<std::uint64_t>(i));
          values.data<float>()[i] = kept.data<float>()[i] + error;
          const std::int64_t row = i / values.size(1), column = i % values.size(1);
          predicted += weights[0].rows[static_cast<std::size_t>(row)] *
                       weights[0].columns[static_cast<std::size_t>(column)] * double{error} * double{error};
        }
        measured += divergence(before, tiny.log_probabilities());
      }
      values.copy_from(kept);
      EXPECT_GT(measured, 1e-8);
      EXPECT_GT(predicted, measured / 2);
      EXPECT_LT(predicted, measured * 2);
      ++compared;
    }
    EXPECT_GE(compared, 12);
  }
}

TEST(BitBudget, MeanBitsAreWithinTheBudgetAndNearIt) {
  Tiny tiny;
  double last = std::numeric_limits<double>::infinity();
  for (const double bits : {4.6, 5.0, 5.5, 6.5, 8.0}) {
    const SchemePlan plan = tiny.plan("gguf", bits, "q4_0,q5_0,q5_1,q8_0");
    EXPECT_TRUE(plan.measured);
    EXPECT_LE(plan.bits_per_weight, bits);
    EXPECT_GT(plan.bits_per_weight, 0.97 * bits);
    EXPECT_LT(plan.cost, last) << "more bits cost less";
    last = plan.cost;
    std::int64_t sum = 0, weights = 0;
    for (const PlannedLayer& layer : plan.layers) {
      sum += layer.bits;
      weights += layer.weights;
    }
    EXPECT_DOUBLE_EQ(plan.bits_per_weight, static_cast<double>(sum) / static_cast<double>(weights));
    EXPECT_EQ(by_layer(tiny.plan("gguf", bits, "q4_0,q5_0,q5_1,q8_0")), by_layer(plan)) << "again";
  }
}

TEST(BitBudget, IsRefusedBelowTheSmallestChoice) {
  Tiny tiny;
  EXPECT_THAT(refusal([&] { (void)tiny.plan("gguf", 4.4, "q4_0,q8_0"); }),
              HasSubstr("--target: no choice of schemes is within it: the smallest has 4.500 bits, the largest 8.500 "
                        "bits a weight"));
  EXPECT_THAT(refusal([&] { (void)tiny.plan("gguf", 0, "q4_0,q8_0", 1000); }), HasSubstr("the smallest has 0.0"));
  EXPECT_EQ(tiny.plan("gguf", 32, "q4_0,q8_0").bits_per_weight, 8.5) << "more than there is: the largest";
}

TEST(BitBudget, OneCandidateIsTheChoice) {
  Tiny tiny;
  const SchemePlan plan = tiny.plan("gguf", 5, "q4_0");
  EXPECT_EQ(plan.layers.size(), 16u) << "14 layers, head and table";
  for (const PlannedLayer& layer : plan.layers) EXPECT_EQ(layer.scheme, find_scheme("q4_0")) << layer.layer;
  EXPECT_EQ(plan.bits_per_weight, 4.5);
}

// vLLM runs q, k and v as one layer, gate and up as another.
TEST(BitBudget, SearchFindsAChoiceWithLessMeasuredDivergenceThanTheEstimatesAndUniformSchemes) {
  for (const auto& [format, bits, names, uniform] :
       {std::tuple("gguf", 5.7, "q4_1,q5_0,q8_0", "q5_0"),
        std::tuple("compressed-tensors", 5.5,
                   "int3_weight_only_g32,int4_weight_only_g32,int5_weight_only_g32,int6_weight_only_g32",
                   "int4_weight_only_g32")}) {
    SCOPED_TRACE(format);
    Tiny tiny;
    const std::vector<double> before = tiny.log_probabilities();
    tiny.search_steps = 40;
    const SchemePlan plan = tiny.plan(format, bits, names);
    ASSERT_TRUE(plan.search);
    EXPECT_LE(plan.bits_per_weight, bits);
    EXPECT_EQ(plan.search->tokens, 16 * 48);
    EXPECT_LE(plan.search->divergence, plan.search->start_divergence);
    EXPECT_GE(plan.search->taken, std::string_view(format) == "gguf" ? 1 : 0);
    EXPECT_EQ(tiny.log_probabilities(), before) << "weights are as before";
    EXPECT_EQ(by_layer(tiny.plan(format, bits, names)), by_layer(plan)) << "again";
    EXPECT_THAT(to_text(plan), HasSubstr(fmt::format("for {} before 40 trials", plan.search->start)));
    EXPECT_EQ(to_json(plan).at("search").at("trials").as_int(), 40);

    const auto measured = [&](const std::map<std::string, const Scheme*>& schemes) {
      TriedWeights tried;
      for (const ModelTensor& tensor : tiny.tensors)
        if (const auto found = schemes.find(tensor.name.substr(0, tensor.name.rfind('.'))); found != schemes.end())
          tried.set(tensor, found->second, tiny.rules, {});
      return divergence(before, tiny.log_probabilities());
    };
    auto all = by_layer(plan);
    if (std::string_view(format) != "gguf") {  // the search counts importance there
      EXPECT_NEAR(measured(all), plan.search->divergence, 1e-3 * plan.search->divergence);
    }
    for (auto& [layer, scheme] : all) scheme = find_scheme(uniform);
    EXPECT_LT(plan.search->divergence, measured(all));
    tiny.search_steps = 0;
    EXPECT_FALSE(tiny.plan(format, bits, names).search);
  }
}

TEST(BitBudget, FusedLayersHaveOneScheme) {
  Tiny tiny;
  std::set<const Scheme*> distinct;
  const auto schemes = by_layer(tiny.plan("compressed-tensors", 4.5));
  for (int layer = 0; layer < 2; ++layer) {
    const auto at = [&](const char* name) { return schemes.at(fmt::format("model.layers.{}.{}", layer, name)); };
    EXPECT_EQ(at("self_attn.q_proj"), at("self_attn.k_proj"));
    EXPECT_EQ(at("self_attn.q_proj"), at("self_attn.v_proj"));
    EXPECT_EQ(at("mlp.gate_proj"), at("mlp.up_proj"));
    for (const char* name : {"self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"})
      distinct.insert(at(name));
  }
  EXPECT_GT(distinct.size(), 1u);
}

TEST(BitBudget, ExpertsOfAProjectionHaveOneType) {
  Tiny tiny("MixtralForCausalLM");
  const auto schemes = by_layer(tiny.plan("gguf", 5.25, "q4_0,q5_0,q8_0"));
  for (int layer = 0; layer < 2; ++layer)
    for (const char* part : {"w1", "w2", "w3"})
      for (int expert = 1; expert < 4; ++expert)
        EXPECT_EQ(schemes.at(fmt::format("model.layers.{}.block_sparse_moe.experts.{}.{}", layer, expert, part)),
                  schemes.at(fmt::format("model.layers.{}.block_sparse_moe.experts.0.{}", layer, part)));
}

TEST(BitBudget, RulesAndExclusionsAreNoPartOfTheChoice) {
  Tiny tiny;
  tiny.rules.exclude = {"lm_head"};
  tiny.rules.rules = {{"*.down_proj", find_scheme("q8_0")}, {"*.q_proj", nullptr}};
  const SchemePlan plan = tiny.plan("gguf", 5, "q4_0,q5_0,q8_0");
  for (const PlannedLayer& layer : plan.layers) {
    EXPECT_EQ(layer.layer.find("down_proj"), std::string::npos);
    EXPECT_EQ(layer.layer.find("q_proj"), std::string::npos);
    EXPECT_NE(layer.layer, "lm_head");
  }
  apply_plan(plan, tiny.rules);
  for (const auto& [layer, scheme] : chosen_schemes(tiny.tensors, tiny.rules))
    if (layer.ends_with("down_proj")) {
      EXPECT_EQ(scheme, find_scheme("q8_0"));
    } else if (layer.ends_with("q_proj") || layer == "lm_head") {
      EXPECT_EQ(scheme, nullptr);
    } else {
      EXPECT_EQ(scheme, by_layer(plan).at(layer));
    }
}

TEST(BitBudget, WithoutCalibrationGoesByRelativeErrorsAndSaysSo) {
  Tiny tiny("LlamaForCausalLM", true);
  tiny.rules.calibration = nullptr;
  tiny.rules.with_importance = false;
  const CapturedLog log;
  const SchemePlan plan = tiny.plan("gguf", 5, "q4_0,q5_0,q8_0");
  EXPECT_FALSE(plan.measured);
  EXPECT_LE(plan.bits_per_weight, 5);
  EXPECT_THAT(log.text(), HasSubstr("the sensitivity of layers is not measured"));
}

TEST(BitBudget, CandidatesAreSchemesOfTheFormat) {
  const ExportFormat &gguf = *export_formats().find("gguf"), &compressed = *export_formats().find("compressed-tensors");
  for (const Scheme* scheme : candidate_schemes("", gguf, nullptr, false, "--scheme"))
    if (scheme != nullptr) {
      EXPECT_TRUE(scheme->weights.blocks) << scheme->name;
      EXPECT_FALSE(scheme->name.starts_with("iq2")) << scheme->name;
    }
  EXPECT_GT(candidate_schemes("", gguf, nullptr, true, "--scheme").size(),
            candidate_schemes("", gguf, nullptr, false, "--scheme").size());
  EXPECT_EQ(candidate_schemes("", compressed, nullptr, false, "--scheme").size(), 22u) << "7 widths, 3 groups, none";
  const auto refused = [&](const char* names, const ExportFormat& format) {
    return refusal([&] { (void)candidate_schemes(names, format, nullptr, false, "--scheme"); });
  };
  EXPECT_THAT(refused("q4_0,q4_k_m", gguf), HasSubstr("'q4_k_m' is a mix of types"));
  EXPECT_THAT(refused("q4_0,,q8_0", gguf), HasSubstr("got one that is empty"));
  EXPECT_THAT(refused("none", gguf), HasSubstr("names no scheme to choose"));
  EXPECT_THAT(refused("q4_0", compressed), HasSubstr("cannot store scheme q4_0"));
  EXPECT_THAT(refused("int4_weight_only_g32", gguf), HasSubstr("stored in blocks of more bits"));
  EXPECT_THAT(refused("int8dyn_int8", compressed), HasSubstr("quantizes inputs"));
  EXPECT_THAT(refused("", *export_formats().find("hf")), HasSubstr("has no schemes to choose from by a budget"));
}

TEST(BitBudget, SizesHaveUnits) {
  EXPECT_EQ(parse_file_size("5GB"), 5'000'000'000);
  EXPECT_EQ(parse_file_size("1.5 GiB"), 1'610'612'736);
  EXPECT_EQ(parse_file_size("24kB"), 24'000);
  for (const char* text : {"", "5", "GB", "0GB", "-5GB", "5gb", "5GBs", "1e3MB", "nanGB", "99999999999GB"})
    EXPECT_EQ(parse_file_size(text), std::nullopt) << text;
}

}  // namespace
}  // namespace quench
