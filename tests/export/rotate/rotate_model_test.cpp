// Rotation of models of all families, with random weights under the configs of the reference models.

#include "export/rotate/rotate_model.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <set>

#include "tests/core/ops/op_testing.h"
#include "tests/export/export_testing.h"
#include "tests/testing.h"

namespace quench {
namespace {

using namespace testing;

std::unique_ptr<nn::CausalLm> random_model(const nn::ModelConfig& config, DType dtype = DType::f32) {
  auto model = std::make_unique<nn::CausalLm>(config, nn::ParameterOptions{.dtype = dtype, .trainable = false});
  model->initialize(5);
  Generator random(3);
  for (nn::Parameter* parameter : model->parameters()) {  // norms and biases that differ by channel
    const Tensor values = parameter->variable.value();
    if (values.rank() != 1 || parameter->name.ends_with("choice_bias")) continue;
    for (std::int64_t i = 0; i < values.numel(); ++i)
      set_element(values, i, get_element(values, i) + 0.2 * static_cast<double>(random.between(-3, 3)));
  }
  return model;
}

std::vector<float> logits(nn::CausalLm& model) {
  constexpr std::int64_t kTokens = 24;
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < kTokens; ++i)
    ids.push_back(static_cast<std::int32_t>((i * i + 7) % model.config().vocab_size));
  const autograd::NoGrad no_grad;
  const nn::ForwardContext context = model.make_context({{0, kTokens, 0, kTokens}}, kTokens);
  return floats(model.logits(model.hidden(Tensor::from_values<std::int32_t>({kTokens}, ids), context)));
}

// Largest difference by the largest logit.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0, scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    scale = std::max(scale, std::abs(static_cast<double>(a[i])));
  }
  return most / scale;
}

nn::ModelConfig config_in(const std::filesystem::path& folder) {
  const std::string file = (folder / "config.json").string();
  return nn::parse_model_config(Json::parse(read_file(file)), file);
}

std::vector<std::filesystem::path> model_folders() {
  std::vector<std::filesystem::path> folders;
  for (const char* parent : {"golden", "reference"})
    for (const auto& entry : std::filesystem::directory_iterator(source_dir() / "tests" / parent / "models"))
      if (std::filesystem::exists(entry.path() / "config.json")) folders.push_back(entry.path());
  std::ranges::sort(folders);
  return folders;
}

TEST(RotateModel, LogitsOfEveryFamilyStayAsTheyWere) {
  std::set<std::string> rotated, refused;
  for (const std::filesystem::path& folder : model_folders()) {
    SCOPED_TRACE(folder.filename().string());
    const nn::ModelConfig config = config_in(folder);
    if (const std::string problem = rotation_problem(config); !problem.empty()) {
      refused.insert(config.model_type);
      continue;
    }
    const auto model = random_model(config);
    const std::vector<float> before = logits(*model);
    const std::vector<float> table = floats(model->units().front().parameters.front()->variable.value());
    const ModelRotation done = rotate_model(*model);
    EXPECT_EQ(done.head_bytes > 0, config.tie_word_embeddings);
    EXPECT_FALSE(model->config().tie_word_embeddings);
    EXPECT_LT(distance(before, logits(*model)), 1e-4);
    EXPECT_NE(floats(model->units().front().parameters.front()->variable.value()), table);
    for (nn::Parameter* parameter : model->parameters())
      if (parameter->name == "model.norm.weight") {
        for (const float x : floats(parameter->variable.value()))
          ASSERT_EQ(x + config.stream.norm.form.weight_offset, 1.0f);
      }
    rotated.insert(config.model_type);
  }
  EXPECT_EQ(refused, (std::set<std::string>{"gemma2", "gemma3_text", "glm4", "olmo2"}));
  for (const char* family : {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "qwen2_moe", "deepseek_v3",
                             "gpt_oss", "granite", "llama4_text", "phi3", "smollm3"})
    EXPECT_TRUE(rotated.contains(family)) << family;
}

TEST(RotateModel, OutliersOfOneChannelSpread) {
  const auto model = random_model(config_in(source_dir() / "tests/golden/models/llama"));
  const auto peak = [&] {  // largest element by the root of the mean square
    double most = 0, sum = 0, count = 0;
    for (nn::Parameter* parameter : model->parameters())
      if (parameter->name.ends_with("o_proj.weight"))
        for (const float x : floats(parameter->variable.value())) {
          most = std::max(most, std::abs(static_cast<double>(x)));
          sum += static_cast<double>(x) * static_cast<double>(x);
          ++count;
        }
    return most / std::sqrt(sum / count);
  };
  for (nn::Parameter* parameter : model->parameters())
    if (parameter->name.ends_with("o_proj.weight")) {
      const Tensor values = parameter->variable.value();
      for (std::int64_t c = 0; c < values.size(1); ++c) values.data<float>()[3 * values.size(1) + c] *= 40.0f;
    }
  const double before = peak();
  (void)rotate_model(*model);
  EXPECT_LT(peak(), 0.6 * before);
}

TEST(RotateModel, RunsAreEqualAndBf16StaysClose) {
  const nn::ModelConfig config = config_in(source_dir() / "tests/golden/models/llama31_tied");
  const auto one = random_model(config, DType::bf16), other = random_model(config, DType::bf16);
  const std::vector<float> before = logits(*one);
  (void)rotate_model(*one);
  (void)rotate_model(*other);
  EXPECT_EQ(logits(*one), logits(*other));
  EXPECT_LT(distance(before, logits(*one)), 0.05);
}

TEST(RotateModel, RefusesWithTheReasonAndLeavesTheModelUnchanged) {
  const auto refuse = [](const nn::ModelConfig& config, std::string_view words, bool head = false) {
    const auto model = random_model(config);
    if (head) (void)model->add_head("score", 2, {.trainable = false});
    if (head) model->initialize(5);
    const std::vector<float> before = logits(*model);
    expect_failure(ErrorCode::unsupported, words, [&] { (void)rotate_model(*model); });
    EXPECT_EQ(logits(*model), before);
    EXPECT_EQ(model->config().tie_word_embeddings, config.tie_word_embeddings);
  };
  const std::filesystem::path models = source_dir() / "tests/reference/models";
  refuse(config_in(models / "gemma2"), "norm post_attention_layernorm of layer 0 multiplies");
  refuse(config_in(models / "olmo2"), "a model of family olmo2 cannot be rotated");
  refuse(config_in(source_dir() / "tests/golden/models/llama"), "there is no rule for score.weight", true);
  nn::ModelConfig mtp = config_in(models / "deepseek_v3_mtp");
  mtp.mtp.layers = mtp.mtp.declared;
  refuse(mtp, "MTP layers");
}

}  // namespace
}  // namespace quench
