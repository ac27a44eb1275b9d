// The forward verb under a recipe, as a user meets it.

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "core/json/json.h"
#include "core/safetensors/safetensors.h"
#include "tests/apps/nonfinite_model.h"
#include "tests/apps/program.h"
#include "tests/train/model_folder/golden_model.h"

namespace quench {
namespace {

using testing::golden_dir;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;
using testing::TempDir;

class ForwardVerb : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < 32; ++i) ids.push_back((i * 7 + 3) % 60);
    const auto bytes = std::as_bytes(std::span(ids));
    write_safetensors(folder_ / "in.safetensors",
                      {{"input_ids", DType::i64, {2, 16}, bytes}, {"labels", DType::i64, {2, 16}, bytes}});
  }
  Outcome forward(const std::string& output, std::vector<std::string> more) {
    std::vector<std::string> arguments{"forward",
                                       "--model",
                                       (golden_dir() / "models" / "llama").string(),
                                       "--input",
                                       "in.safetensors",
                                       "--output",
                                       output,
                                       "--dtype",
                                       "f32",
                                       "--device",
                                       "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder_.path(), arguments);
  }
  double loss(const std::string& recipe) {
    const Outcome outcome = forward(recipe + ".safetensors", {"--recipe", recipe, "--json"});
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return Json::parse(outcome.output).at("loss").as_double();
  }

  TempDir folder_;
};

TEST_F(ForwardVerb, RecipesAreNearHighPrecisionAndNotEqual) {
  const double exact = loss("bf16");
  for (const char* recipe : {"float8_tensorwise", "float8_rowwise", "float8_rowwise_with_gw_hp"}) {
    EXPECT_NE(loss(recipe), exact) << recipe;
    EXPECT_NEAR(loss(recipe), exact, 0.02) << recipe;
  }
}

TEST_F(ForwardVerb, SaysWhichLayersAreConverted) {
  const Outcome usual = forward("a.safetensors", {"--recipe", "float8_rowwise", "--grads"});
  ASSERT_EQ(usual.status, 0) << usual.errors;
  EXPECT_THAT(usual.output, HasSubstr("model.layers.*.mlp.down_proj"));
  EXPECT_THAT(usual.output, HasSubstr("(skipped: in recipe.filter.exclude)")) << "the head";
  const Outcome fewer =
      forward("b.safetensors", {"--recipe", "float8_rowwise", "--recipe-exclude", "lm_head,*.o_proj"});
  ASSERT_EQ(fewer.status, 0) << fewer.errors;
  const SafetensorsReader a(folder_ / "a.safetensors"), b(folder_ / "b.safetensors");
  EXPECT_NE(a.find("grad.model.layers.0.mlp.down_proj.weight"), nullptr);
  EXPECT_EQ(b.find("grad.model.layers.0.mlp.down_proj.weight"), nullptr) << "not asked for";
}

TEST_F(ForwardVerb, EmulationIsWhatTheCpuDoes) {
  ASSERT_EQ(forward("a.safetensors", {"--recipe", "float8_tensorwise"}).status, 0);
  ASSERT_EQ(forward("b.safetensors", {"--recipe", "float8_tensorwise", "--emulate"}).status, 0);
  EXPECT_EQ(testing::read_file(folder_ / "a.safetensors"), testing::read_file(folder_ / "b.safetensors"));
}

// Checkpoints of gpt-oss hold one tensor for all experts, with alternating columns of gate and up.
TEST_F(ForwardVerb, GradientsAreNamedAndLaidOutAsTheCheckpoint) {
  for (const std::string name : {"gpt_oss", "llama4", "phi3", "qwen2_moe"}) {
    const std::filesystem::path model = testing::reference_dir() / "models" / name;
    std::filesystem::copy_file(model / "reference.safetensors", folder_ / (name + ".in.safetensors"));
    const Outcome outcome = run_program(
        folder_.path(), {"forward", "--model", model.string(), "--input", name + ".in.safetensors", "--output",
                         name + ".safetensors", "--dtype", "f32", "--device", "cpu", "--grads"});
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    const SafetensorsReader written(folder_ / (name + ".safetensors")), expected(model / "reference.safetensors"),
        stored(model / "model.safetensors");
    for (const SafetensorsEntry& entry : stored.header().entries) {
      const SafetensorsEntry* gradient = written.find("grad." + entry.name);
      ASSERT_NE(gradient, nullptr) << entry.name;
      EXPECT_EQ(gradient->shape, entry.shape) << entry.name;
      if (expected.find("grad." + entry.name) == nullptr) continue;  // Transformers' module has these fused
      const std::vector<float> a = testing::read_f32(written, "grad." + entry.name);
      const std::vector<float> b = testing::read_f32(expected, "grad." + entry.name);
      EXPECT_LT(testing::relative_l2(std::span<const float>(a), std::span<const float>(b)), 1e-4) << entry.name;
    }
  }
}

// The tool shows what a model does, whatever that is; it says so.
TEST_F(ForwardVerb, ValuesThatAreNotFiniteAreWrittenWithAWarning) {
  testing::make_nonfinite_model(golden_dir() / "models" / "llama", folder_ / "broken",
                                std::numeric_limits<float>::quiet_NaN());
  const Outcome outcome = run_program(folder_.path(), {"forward", "--model", "broken", "--input", "in.safetensors",
                                                       "--output", "out.safetensors", "--device", "cpu", "--json"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("not finite, and written as they are: logits, loss"));
  EXPECT_EQ(Json::parse(outcome.output).at("nonfinite").as_array().size(), 2u);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out.safetensors"));
}

TEST_F(ForwardVerb, UnknownRecipesAndPatternsAreNamed) {
  const Outcome recipe = forward("a.safetensors", {"--recipe", "float7"});
  EXPECT_EQ(recipe.status, 2);
  EXPECT_THAT(recipe.errors, HasSubstr("float8_rowwise"));
  const Outcome pattern = forward("a.safetensors", {"--recipe", "float8_rowwise", "--recipe-exclude", "*.q_porj"});
  EXPECT_EQ(pattern.status, 2);
  EXPECT_THAT(pattern.errors, HasSubstr("'*.q_porj' matches no linear layer"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a.safetensors"));
}

}  // namespace
}  // namespace quench
