// Importance matrices of models: computed on calibration data, looked up by layer, refused for another model.

#include "export/imatrix/importance.h"

#include <array>
#include <numeric>

#include "export/ptq/collect_imatrix.h"
#include "export/table/format.h"
#include "tests/export/export_testing.h"
#include "tests/train/metrics/captured_log.h"

namespace quench {
namespace {

using testing::CapturedLog;
using ::testing::HasSubstr;

nn::ModelConfig config_of(const char* family, std::int64_t layers = 2, std::int64_t width = 64) {
  Json json = Json::parse(R"({"vocab_size": 96, "intermediate_size": 96, "num_attention_heads": 4,
      "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": true})");
  json.set("architectures", Json(Json::Array{Json(family)}));
  json.set("num_hidden_layers", layers);
  json.set("hidden_size", width);
  if (std::string_view(family) == "MixtralForCausalLM") {
    json.set("num_local_experts", std::int64_t{4});
    json.set("num_experts_per_tok", std::int64_t{1});
  }
  return nn::parse_model_config(json, "config.json");
}

struct Collected {
  nn::ModelConfig config;
  nn::CausalLm model;
  std::vector<ModelTensor> tensors;
  QuantizationRules rules;

  explicit Collected(const nn::ModelConfig& of, int tokens = 32)
      : config(of), model(of, {.dtype = DType::f32, .trainable = false}) {
    model.initialize(3);
    tensors = model_tensors(model, DType::f32);
    CalibrationData data{.source = "test"};
    for (int s = 0; s < 3; ++s) {
      data.sequences.emplace_back();
      for (int i = 0; i < tokens; ++i) data.sequences.back().push_back((5 * i + s) % 96);
    }
    rules.calibration = std::make_shared<CalibrationData>(std::move(data));
  }
  [[nodiscard]] const ModelTensor& at(std::string_view layer) const {
    return *std::ranges::find(tensors, layer, &ModelTensor::layer);
  }
  Imatrix matrix() { return collect_imatrix(model, tensors, rules); }
};

std::string refusal(const Imatrix& matrix, const Collected& of) {
  try {
    (void)Importance(matrix, of.tensors, of.config, "x.gguf");
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(ImportanceMatrix, HasEveryLayerUnderItsGgufNameWithItsTokens) {
  Collected llama(config_of("LlamaForCausalLM"));
  const Imatrix matrix = llama.matrix();
  EXPECT_EQ(matrix.entries.size(), 14u);
  EXPECT_EQ(matrix.chunks, 3);
  EXPECT_EQ(matrix.chunk_size, 32);
  for (const auto& [name, entry] : matrix.entries) {
    EXPECT_THAT(entry.counts, ::testing::ElementsAre(96)) << name;
    EXPECT_EQ(entry.columns(), name.find("ffn_down") == name.npos ? 64 : 96) << name;
  }
  // One input.
  EXPECT_EQ(matrix.entries.at("blk.1.attn_q.weight").sums, matrix.entries.at("blk.1.attn_v.weight").sums);
  EXPECT_NE(matrix.entries.at("blk.1.attn_q.weight").sums, matrix.entries.at("blk.0.attn_q.weight").sums);
}

TEST(ImportanceMatrix, IsTheMeanSquareOfTheInputs) {
  InputStatistics inputs(2, false);
  inputs.add(Tensor::from_values<float>({3, 2}, std::array{1.0f, -2.0f, 2.0f, 0.0f, 3.0f, 4.0f}), "layer");
  EXPECT_EQ(inputs.squares().data<double>()[0], 14);
  EXPECT_EQ(inputs.squares().data<double>()[1], 20);
  Collected llama(config_of("LlamaForCausalLM"));
  const Imatrix matrix = llama.matrix();
  const Importance importance(matrix, llama.tensors, llama.config, "x.gguf");
  const auto values = importance.of(llama.at("model.layers.1.mlp.down_proj"));
  const ImatrixEntry& entry = matrix.entries.at("blk.1.ffn_down.weight");
  ASSERT_EQ(values.size(), 96u);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_FLOAT_EQ(values[i], entry.sums[i] / 96);
}

TEST(ImportanceMatrix, ExpertsHaveTheirOwnTokens) {
  Collected mixtral(config_of("MixtralForCausalLM"));
  Imatrix matrix = mixtral.matrix();
  const ImatrixEntry& up = matrix.entries.at("blk.0.ffn_up_exps.weight");
  ASSERT_EQ(up.matrices(), 4);
  EXPECT_EQ(up.columns(), 64);
  EXPECT_EQ(std::accumulate(up.counts.begin(), up.counts.end(), 0.0f), 96) << "one expert a token";
  // An expert without tokens: as important everywhere, and named.
  ImatrixEntry& down = matrix.entries.at("blk.1.ffn_down_exps.weight");
  down.counts = {96, 0, 1, 1};
  const Importance importance(matrix, mixtral.tensors, mixtral.config, "x.gguf");
  const CapturedLog log;
  const auto values = importance.of(mixtral.at("model.layers.1.block_sparse_moe.experts.1.w2"));
  EXPECT_EQ(values, std::vector<float>(96, 1.0f));
  EXPECT_THAT(log.text(), HasSubstr("experts.1.w2: no calibration tokens reach this expert"));
  // The legacy form: one count.
  down.counts = {2};
  const Importance legacy(matrix, mixtral.tensors, mixtral.config, "x.dat");
  EXPECT_FLOAT_EQ(legacy.of(mixtral.at("model.layers.1.block_sparse_moe.experts.3.w2"))[5], down.sums[3 * 96 + 5] / 2);
}

TEST(ImportanceMatrix, OfAnotherModelIsRefusedByName) {
  Collected llama(config_of("LlamaForCausalLM"));
  EXPECT_THAT(
      refusal(Collected(config_of("LlamaForCausalLM", 3)).matrix(), llama),
      HasSubstr("x.gguf is the importance matrix of another model: it has blk.2.attn_k.weight, and this model 2 "
                "layers"));
  EXPECT_THAT(refusal(Collected(config_of("LlamaForCausalLM", 2, 128)).matrix(), llama),
              HasSubstr("blk.0.attn_q.weight has 128 values for 1 matrices, this model has 1 of width 64"));
  EXPECT_THAT(
      refusal(Collected(config_of("MixtralForCausalLM")).matrix(), Collected(config_of("LlamaForCausalLM", 2, 128))),
      HasSubstr("importance matrix of another model"));
  Imatrix other;
  other.entries["output.weight"] = {.sums = std::vector<float>(64, 1.0f), .counts = {1}};
  EXPECT_THAT(refusal(other, llama), HasSubstr("none of its 1 names (output.weight, ...) is a layer of this one"));
}

TEST(ImportanceMatrix, LayersThatItLacksAreNamed) {
  Collected llama(config_of("LlamaForCausalLM"));
  Imatrix matrix = llama.matrix();
  matrix.entries.erase("blk.1.attn_v.weight");
  const CapturedLog log;
  const Importance importance(matrix, llama.tensors, llama.config, "x.gguf");
  EXPECT_THAT(log.text(), HasSubstr("x.gguf has no entry for 1 of the model's tensors (blk.1.attn_v.weight)"));
  EXPECT_TRUE(importance.of(llama.at("model.layers.1.self_attn.v_proj")).empty());
  EXPECT_FALSE(importance.of(llama.at("model.layers.1.self_attn.k_proj")).empty());
}

TEST(ImportanceMatrix, ChangesTheBlocksOfMixedLayers) {
  std::vector<std::shared_ptr<const QuantizedWeight>> written;
  for (const bool with : {false, true}) {
    Collected llama(config_of("LlamaForCausalLM"));
    llama.rules.scheme = find_scheme("q4_k_m");
    llama.rules.exclude.clear();
    llama.rules.with_importance = with;
    if (!with) llama.rules.calibration = nullptr;
    apply_format(*export_formats().find("gguf"), llama.rules, llama.tensors, llama.config);
    const auto report = quantize_model(llama.model, llama.tensors, llama.rules);
    EXPECT_EQ(report.size(), 15u) << "with the tied table";
    written.push_back(llama.at("model.layers.0.self_attn.q_proj").quantized);
    ASSERT_NE(written.back(), nullptr);
  }
  EXPECT_FALSE(testing::equal_bytes(written[0]->codes, written[1]->codes));
}

TEST(ImportanceMatrix, IsDemandedByTheMixesThatLlamaCppRefusesWithout) {
  const auto refused = [](std::string_view scheme, std::int64_t width) -> std::string {
    Collected llama(config_of("LlamaForCausalLM", 2, width));
    llama.rules.scheme = find_scheme(scheme);
    try {
      apply_format(*export_formats().find("gguf"), llama.rules, llama.tensors, llama.config);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_THAT(refused("iq2_xxs", 256),
              HasSubstr("scheme iq2_xxs stores blk.0.attn_q.weight as IQ2_XXS, which needs an importance matrix: name "
                        "one (--imatrix, export.imatrix), or calibration data"));
  EXPECT_THAT(refused("q2_k_s", 256), HasSubstr("as Q2_K, which needs an importance matrix"));
  EXPECT_EQ(refused("q2_k", 256), "nothing was refused");
  EXPECT_EQ(refused("iq2_xxs", 64), "nothing was refused") << "every layer is IQ4_NL there";
}

}  // namespace
}  // namespace quench
