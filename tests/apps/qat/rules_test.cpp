// Quantization-aware training with a scheme for each layer, through the program: recipe.rules, by hand and of a plan.

#include <gmock/gmock.h>

#include "tests/apps/qat/exported_as_trained.h"
#include "tests/apps/run_project.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_file;
using Options = std::vector<std::string>;

class QatRules : public testing::RunProject {
 protected:
  [[nodiscard]] static Options train(const std::string& folder, const Options& more) {
    Options all{"train",
                "run.json",
                "--run.folder=" + folder,
                "--checkpoint.keep_latest=0",
                "--training.steps=10",
                "--evaluation.interval=10"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void expect_exported_as_trained(const std::string& run) const { testing::expect_exported_as_trained(work() / run); }
  [[nodiscard]] std::string refused(const Options& more) const {
    const Outcome outcome = run(train("refused", more));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_FALSE(std::filesystem::exists(work() / "refused/checkpoints"));
    return outcome.errors;
  }
};

const std::string kIntegers = "--recipe.name=qat_intx_weight_only", kGguf = "--recipe.name=qat_gguf";

TEST_F(QatRules, LayersAreTrainedAndExportedInTheirSchemes) {
  expect_ok(train("mixed", {kIntegers, "--recipe.weight_bits=3",
                            "--recipe.rules=*.down_proj=int8_weight_only_g32,*.layers.0.self_attn.o_proj=none",
                            "--export.format=compressed-tensors"}));
  expect_exported_as_trained("mixed");
  const std::string config = read_file(work() / "mixed/export/config.json");
  EXPECT_THAT(config, AllOf(HasSubstr(R"("num_bits": 3)"), HasSubstr(R"("num_bits": 8)")));
  // By the verb, with the same rules; the scheme of the run is not by itself what was trained.
  expect_ok({"quantize", "--model", "mixed", "--scheme", "int3_weight_only_g32", "--rule",
             "*.down_proj=int8_weight_only_g32", "--exclude", "lm_head,model.layers.0.self_attn.o_proj", "--output",
             "by-verb"});
  EXPECT_EQ(read_file(work() / "by-verb/model.safetensors"), read_file(work() / "mixed/export/model.safetensors"));
  const Outcome other = run({"quantize", "--model", "mixed", "--scheme", "int3_weight_only_g32", "--output", "other"});
  EXPECT_THAT(other.output + other.errors,
              HasSubstr("are stored as int3_weight_only_g32: model.layers.*.mlp.down_proj"));
}

TEST_F(QatRules, TypesOfAGgufFileFollowRules) {
  expect_ok(train("gguf", {kGguf, "--recipe.gguf_scheme=q4_0", "--recipe.rules=*.v_proj=q8_0,*.up_proj=q5_0",
                           "--export.format=gguf"}));
  expect_exported_as_trained("gguf");
}

// Parts of a layer that runs as one, next to parts in high precision.
TEST_F(QatRules, PartsOfALayerMayStayInHighPrecision) {
  for (const auto& [name, rules] :
       {std::pair("gate", "*.gate_proj=none"),
        {"mixed", "*.gate_proj=none,*.up_proj=q8_0"},
        {"keys", "model.layers.0.self_attn.q_proj=q8_0,model.layers.0.self_attn.k_proj=none"}}) {
    SCOPED_TRACE(name);
    expect_ok(train(
        name, {kGguf, "--recipe.gguf_scheme=q4_0", fmt::format("--recipe.rules={}", rules), "--export.format=gguf"}));
    expect_exported_as_trained(name);
  }
}

TEST_F(QatRules, TrainingStartsFromAPlanOfBitsByBudget) {
  make_base();
  for (const auto& [format, name, bits] :
       {std::tuple("gguf", kGguf, "5.5"), {"compressed-tensors", kIntegers, "4.6"}}) {
    SCOPED_TRACE(format);
    const std::string plan = fmt::format("{}.json", format);
    expect_ok({"quantize",
               "--model",
               "base",
               "--format",
               format,
               "--target-bits",
               bits,
               "--scheme",
               std::string(format) == "gguf" ? "q4_0,q5_0,q8_0"
                                             : "int3_weight_only_g32,int4_weight_only_g32,int6_weight_only_g32",
               "--calibration",
               "held_out.txt",
               "--calibration-samples",
               "2",
               "--calibration-seq-len",
               "32",
               "--search-steps",
               "4",
               "--save-plan",
               plan,
               "--output",
               fmt::format("ptq-{}{}", format, std::string(format) == "gguf" ? ".gguf" : "")});
    const Json read = Json::parse(read_file(work() / plan));
    expect_ok(train(format, {name,
                             std::string(format) == "gguf" ? "--recipe.gguf_scheme=" + read.at("scheme").as_string()
                                                           : "--recipe.weight_bits=4",
                             "--recipe.rules=" + read.at("rules").dump(), fmt::format("--export.format={}", format)}));
    expect_exported_as_trained(format);
  }
}

TEST_F(QatRules, RulesThatDoNotFitAreRefused) {
  EXPECT_THAT(refused({kIntegers, "--recipe.rules=*.down_proj"}),
              AllOf(HasSubstr("recipe.rules"), HasSubstr("expected PATTERN=SCHEME")));
  EXPECT_THAT(refused({kIntegers, "--recipe.rules=*.down_proj=int9_weight_only"}), HasSubstr("recipe.rules"));
  EXPECT_THAT(refused({kIntegers, "--recipe.rules=*.down_proj=q4_0"}), HasSubstr("name schemes of the same kind"));
  EXPECT_THAT(refused({kIntegers, "--recipe.rules=*.down_proj=int8dyn_int4_g32"}),
              HasSubstr("name schemes of the same kind"));
  EXPECT_THAT(refused({kGguf, "--recipe.rules=*.down_proj=int4_weight_only_g32"}),
              HasSubstr("name schemes of the same kind"));
  EXPECT_THAT(refused({kIntegers, "--recipe.rules=*.q_proj=int8_weight_only_g32"}),
              AllOf(HasSubstr("recipe.rules"), HasSubstr("q_proj"), HasSubstr("are one layer")));
  EXPECT_THAT(refused({kIntegers, "--recipe.rules=*.down_projj=int8_weight_only_g32"}),
              AllOf(HasSubstr("*.down_projj"), HasSubstr("matches no")));
  EXPECT_THAT(refused({kIntegers, "--recipe.rules=*.down_proj=int8_weight_only_g32", "--recipe.learned_scales=true"}),
              HasSubstr("recipe.learned_scales"));
  EXPECT_THAT(refused({"--recipe.name=bf16", "--recipe.rules=*.down_proj=int8_weight_only_g32"}),
              HasSubstr("does not use it"));
}

}  // namespace
}  // namespace quench
