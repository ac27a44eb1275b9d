// GGUF of Gemma with a query_pre_attn_scalar other than llama.cpp's: the ratio is in the weights, and the file's scale
// is llama.cpp's. Source of its scale: f_attention_scale of llama.cpp's gemma2 and gemma3.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autograd/tape.h"
#include "core/ops/packed_linear.h"
#include "export/formats/gguf/model_config.h"
#include "export/formats/gguf/query_scale.h"
#include "export/formats/gguf/writer.h"
#include "export/table/format.h"
#include "export/table/open_stored_weights.h"
#include "tests/testing.h"
#include "tests/train/metrics/captured_log.h"
#include "train/model_folder/model_folder.h"
#include "train/run_export/trained_scheme.h"

namespace quench {
namespace {

using testing::CapturedLog;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempDir;

constexpr std::int64_t kHeadWidth = 32;
constexpr std::string_view kQuery = "model.layers.0.self_attn.q_proj.weight";

nn::ModelConfig gemma_of(std::string_view type, std::int64_t scalar, std::int64_t layers = 2) {
  Json config = Json::parse(R"({"vocab_size": 48, "hidden_size": 96, "intermediate_size": 128, "head_dim": 32,
      "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64, "sliding_window": 8,
      "initializer_range": 0.3})");
  config.set("model_type", type);
  config.set("architectures", Json(Json::Array{Json(type == "gemma2" ? "Gemma2ForCausalLM" : "Gemma3ForCausalLM")}));
  config.set("num_hidden_layers", layers);
  config.set("query_pre_attn_scalar", scalar);
  return nn::parse_model_config(config, "config.json");
}

Tensor logits_of(nn::CausalLm& model) {
  const autograd::NoGrad no_grad;
  constexpr std::int32_t kTokens = 24;
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < kTokens; ++i) ids.push_back(i * 7 % 48);
  const auto context = model.make_context({{0, kTokens, 0, kTokens}}, kTokens);
  return model.logits(model.hidden(Tensor::from_values<std::int32_t>({kTokens}, ids), context));
}

// Relative.
double distance(const Tensor& a, const Tensor& b) {
  const auto values = [](const Tensor& t) {
    return std::span<const float>(t.data<float>(), static_cast<std::size_t>(t.numel()));
  };
  return testing::relative_l2(values(a), values(b));
}

struct ScaledGemma {
  TempDir temp;
  nn::CausalLm model;

  explicit ScaledGemma(const nn::ModelConfig& config) : model(config, {}) {
    model.initialize(3);
    for (nn::Parameter* p : model.parameters())
      if (p->name.ends_with("norm.weight"))
        for (std::int64_t i = 0; i < p->numel(); ++i)
          p->variable.value().data<float>()[i] = 0.25f * static_cast<float>((i * 7 + 3) % 5) - 0.5f;
  }
  std::filesystem::path write(const char* scheme = nullptr,
                              const std::function<double(nn::CausalLm&)>& perplexity = nullptr) {
    ModelFolderOptions options{.dtype = DType::f32, .format = export_formats().find("gguf")};
    if (scheme != nullptr) options.quantization = QuantizationRules{.scheme = find_scheme(scheme)};
    if (perplexity) options.card = {.source = "a", .perplexity_data = "b", .perplexity = perplexity};
    (void)save_model_folder(model, {temp / "m"}, options);
    return temp / "m";
  }
};

Tensor logits_of_stored(const std::filesystem::path& path) {
  nn::CausalLm model(read_model_config(path), {});
  load_weights(model, path);
  return logits_of(model);
}

class QueryScale : public ::testing::TestWithParam<std::tuple<std::string_view, std::int64_t>> {
 protected:
  [[nodiscard]] static std::string_view type() { return std::get<0>(GetParam()); }
  [[nodiscard]] static std::int64_t scalar() { return std::get<1>(GetParam()); }
};

TEST_P(QueryScale, LogitsOfTheFileAreTheModels) {
  ScaledGemma gemma(gemma_of(type(), scalar()));
  const Tensor expected = logits_of(gemma.model);
  const CapturedLog log;
  const auto folder = gemma.write();
  const std::string tensor = type() == "gemma2" ? "q_proj" : "q_norm";
  if (scalar() == kHeadWidth)
    EXPECT_THAT(log.text(), Not(HasSubstr("are stored times")));
  else
    EXPECT_THAT(log.text(), HasSubstr(fmt::format("model.layers.0.self_attn.{}.weight and its like in other layers are "
                                                  "stored times {:.6g}: scores are divided by the square root of {}, "
                                                  "in llama.cpp of 32",
                                                  tensor, std::sqrt(32.0 / static_cast<double>(scalar())), scalar())));
  EXPECT_EQ(Json::parse_file(folder / "config.json").at("query_pre_attn_scalar"), Json(kHeadWidth));
  EXPECT_LT(distance(logits_of_stored(folder), expected), 1e-5);
  const auto alone = gemma.temp / "alone.gguf";
  std::filesystem::copy_file(folder / kGgufFileName, alone);
  EXPECT_EQ(gguf_model_config(alone).at("query_pre_attn_scalar"), Json(kHeadWidth));
  EXPECT_LT(distance(logits_of_stored(alone), expected), 1e-5);
  Json neighbour = Json::parse_file(folder / "config.json");  // config of the model that the file was made from
  neighbour.set("query_pre_attn_scalar", scalar());
  testing::write_file(gemma.temp / "config.json", neighbour.dump());
  EXPECT_LT(distance(logits_of_stored(alone), expected), 1e-5);
  EXPECT_EQ(distance(logits_of(gemma.model), expected), 0) << "the model is as it was";
}

// Quantized values include the ratio; the model that a perplexity is measured with does not.
TEST_P(QueryScale, PerplexityIsMeasuredUnderTheModelsOwnScale) {
  ScaledGemma gemma(gemma_of(type(), scalar()));
  const Tensor dense = logits_of(gemma.model);
  Tensor measured;
  const auto folder = gemma.write("q8_0", [&](nn::CausalLm& model) {
    measured = logits_of(model).clone();
    return 1.0;
  });
  EXPECT_LT(distance(measured, logits_of_stored(folder)), 1e-5);
  EXPECT_GT(distance(measured, dense), 1e-5);
  EXPECT_LT(distance(measured, dense), 0.1);
}

INSTANTIATE_TEST_SUITE_P(Gemma, QueryScale,
                         ::testing::Combine(::testing::Values("gemma2", "gemma3_text"),
                                            ::testing::Values<std::int64_t>(256, 24, kHeadWidth)),
                         [](const auto& p) {
                           return fmt::format("{}_{}", std::get<0>(p.param), std::get<1>(p.param));
                         });

// In Gemma 2's largest model llama.cpp divides by hidden_size / heads.
TEST(QueryScaleFactor, FollowsFromTheSizes) {
  EXPECT_FLOAT_EQ(gguf_query_factor(gemma_of("gemma2", 256)), std::sqrt(32.0f / 256));
  EXPECT_FLOAT_EQ(gguf_query_factor(gemma_of("gemma2", 256, 46)), std::sqrt(48.0f / 256));
  EXPECT_FLOAT_EQ(gguf_query_factor(gemma_of("gemma3_text", 256, 62)), std::sqrt(48.0f / 256));
  EXPECT_EQ(gguf_query_factor(gemma_of("gemma3_text", 32)), 1.0f);
  EXPECT_EQ(gguf_query_factor(gemma_of("gemma2", 128)), 0.5f);
}

// A power of two keeps codes; another factor of trained ones is refused.
TEST(QueryScaleCodes, OfTrainedLayersAreKeptOrRefused) {
  ScaledGemma gemma(gemma_of("gemma2", 128)), plain(gemma_of("gemma2", kHeadWidth));
  const auto values = [](const std::filesystem::path& folder) {
    const auto stored = open_stored_weights(folder, *stored_model_config(folder));
    const PackedMatrix packed = stored->read_packed(kQuery);
    const Tensor out = Tensor::empty({packed.rows(), packed.columns()}, DType::f32);
    unpack({packed, out});
    return out;
  };
  const Tensor halved = values(gemma.write("int8_weight_only_g32")),
               whole = values(plain.write("int8_weight_only_g32"));
  for (std::int64_t i = 0; i < whole.numel(); ++i)
    ASSERT_EQ(halved.data<float>()[i], 0.5f * whole.data<float>()[i]) << i;

  const auto refusal = [](std::string_view type, std::int64_t scalar, bool high_precision, const char* stored) {
    nn::ModelConfig config = gemma_of(type, scalar);
    nn::CausalLm model(config, {});
    model.initialize(1);
    std::vector<ModelTensor> tensors = model_tensors(model, DType::f32);
    fold_query_scale(tensors, config);
    TrainedScheme trained{
        .scheme = find_scheme("int8_weight_only_g32"), .recipe = "qat_int8_weight_only", .high_precision = {}};
    if (high_precision)
      for (const ModelTensor& tensor : tensors) trained.high_precision.insert(tensor.parameter->name);
    try {
      trained.require_kept_codes(tensors, {.scheme = find_scheme(stored)});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal("gemma2", 256, false, "int8_weight_only_g32"),
              HasSubstr("model.layers.0.self_attn.q_proj: the run trained its int8_weight_only_g32 values (recipe "
                        "qat_int8_weight_only), and the file holds them times 0.353553"));
  EXPECT_EQ(refusal("gemma2", 128, false, "int8_weight_only_g32"), "");
  EXPECT_EQ(refusal("gemma2", 256, true, "int8_weight_only_g32"), "") << "not trained for codes";
  EXPECT_EQ(refusal("gemma2", 256, false, "int4_weight_only_g32"), "") << "other codes anyway";
  EXPECT_EQ(refusal("gemma3_text", 256, false, "int8_weight_only_g32"), "") << "in norms";
}

}  // namespace
}  // namespace quench
