// optimizer.groups.

#include <gmock/gmock.h>

#include <map>

#include "nn/optim/table.h"
#include "tests/train/config/config_testing.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/session/model_setup.h"
#include "train/session/optimizer_setup.h"
#include "train/session/trained_parameters.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using Options = std::vector<std::string>;

class ParameterGroupsOfRuns : public ::testing::Test {
 protected:
  [[nodiscard]] RunConfig config(const Options& options) const { return tiny_.config("run", options); }
  // One step of every parameter with gradients of 0.5: the change of its first element.
  [[nodiscard]] std::map<std::string, double> changes(const Options& options) const {
    const RunConfig run = config(options);
    const ModelSetup setup = build_model(ResolvedConfig(run), Device{});
    fill_model(*setup.model, run);
    const std::unique_ptr<nn::Optimizer> optimizer = make_optimizer(*setup.model, run);
    optimizer->refresh_master();
    std::map<std::string, double> first;
    for (nn::Parameter* parameter : setup.model->parameters()) {
      Tensor gradient = parameter->variable.gradient()->target().tensor;
      std::fill_n(gradient.data<float>(), gradient.numel(), 0.5f);
      first[parameter->name] = parameter->variable.value().data<float>()[0];
    }
    optimizer->step(0.1, 1, Tensor::from_values<float>({1}, std::vector<float>{1}));
    for (const nn::Parameter* parameter : setup.model->parameters())
      first[parameter->name] -= parameter->variable.value().data<float>()[0];
    return first;
  }
  [[nodiscard]] std::string refusal(const std::string& groups, Options more = {}) const {
    more.push_back("--optimizer.groups=" + groups);
    try {
      (void)build_model(ResolvedConfig(config(more)), Device{});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      return error.what();
    }
    return "accepted";
  }
  testing::TinyRun tiny_;
};

// A zero and a unit scale, under every optimizer; Muon's matrices among them.
TEST_F(ParameterGroupsOfRuns, ScaleTheLearningRate) {
  constexpr const char* kGroups =
      R"(--optimizer.groups=[{"match": ["*layers.0.*"], "lr_scale": 0}, {"match": ["*layers.*"], "lr_scale": 0.25}])";
  for (const nn::OptimizerEntry& optimizer : nn::optimizer_table()) {
    SCOPED_TRACE(optimizer.name);
    const Options common{"--optimizer.name=" + std::string(optimizer.name), "--optimizer.weight_decay=0",
                         "--model.hidden_size=256"};
    Options grouped = common;
    grouped.emplace_back(kGroups);
    const auto plain = changes(common);
    for (const auto& [name, change] : changes(grouped)) {
      const double scale = name.find("layers.0.") != std::string::npos ? 0 : name.find("layers.") == 6 ? 0.25 : 1;
      EXPECT_NEAR(change, scale * plain.at(name), 1e-6 + 1e-3 * std::abs(plain.at(name))) << name;
      if (scale != 0.25) {
        EXPECT_EQ(change, scale * plain.at(name)) << name;
      }
      EXPECT_NE(plain.at(name), 0) << name;
    }
  }
}

TEST_F(ParameterGroupsOfRuns, HaveTheirOwnPeakAndDecay) {
  const Options common{"--optimizer.lr=0.01", "--optimizer.weight_decay=0", "--training.dtype=f32"};
  Options grouped = common;
  grouped.emplace_back(
      R"(--optimizer.groups=[{"match": ["model.norm.weight"], "lr": 0.02, "weight_decay": 0.5}, {"match": ["*norm*"], "lr": 0.04}])");
  const auto plain = changes(common), own = changes(grouped);
  // AdamW's decoupled decay, also of a parameter in decay_exclude: lr * decay * 1.
  EXPECT_NEAR(own.at("model.norm.weight"), 2 * plain.at("model.norm.weight") + 0.2 * 0.5, 1e-6);
  const std::string norm = "model.layers.0.input_layernorm.weight";
  EXPECT_NEAR(own.at(norm), 4 * plain.at(norm), 1e-6);
  EXPECT_EQ(own.at("model.embed_tokens.weight"), plain.at("model.embed_tokens.weight"));
}

TEST_F(ParameterGroupsOfRuns, ResumeExactlyAndMayChange) {
  for (const nn::OptimizerEntry& optimizer : nn::optimizer_table()) {
    SCOPED_TRACE(optimizer.name);
    const testing::TinyRun tiny;
    const auto run = [&](const std::string& name, int steps, const std::string& groups) {
      tiny.run(tiny.config(
          name, {"--training.dtype=bf16", "--training.master_dtype=none", "--model.hidden_size=256",
                 "--model.num_hidden_layers=1", "--evaluation.interval=0", "--training.steps=" + std::to_string(steps),
                 "--lr_schedule.decay_steps=6", "--checkpoint.interval=0",
                 "--optimizer.name=" + std::string(optimizer.name), "--optimizer.groups=" + groups}));
    };
    const std::string groups = R"([{"match": ["*mlp*"], "lr_scale": 0.5, "weight_decay": 0.01}])";
    run("whole", 4, groups);
    run("parts", 2, groups);
    run("parts", 4, groups);
    EXPECT_EQ(tiny.losses("parts"), tiny.losses("whole"));
    testing::expect_same_tensors(tiny.checkpoint("parts", 4), tiny.checkpoint("whole", 4));
    run("parts", 5, R"([{"match": ["*norm*"], "lr_scale": 0.5}])");
  }
}

TEST_F(ParameterGroupsOfRuns, CoverAdapters) {
  const RunConfig run = config({"--lora.rank=4", R"(--optimizer.groups=[{"match": ["*lora_B*"], "lr_scale": 16}])"});
  const ModelSetup setup = build_model(ResolvedConfig(run), Device{});
  const ParameterGroups groups(*setup.model, run.optimizer);
  for (const nn::Parameter* parameter : setup.adapters->parameters())
    EXPECT_EQ(groups.lr_scale(*parameter), parameter->name.find("lora_B") != std::string::npos ? 16 : 1)
        << parameter->name;
  EXPECT_THAT(groups.describe(*setup.model), HasSubstr("optimizer.groups[0]: lr 0.16, "));
}

TEST_F(ParameterGroupsOfRuns, MistakesAreNamed) {
  EXPECT_THAT(refusal(R"([{"match": ["*.mpl.*"], "lr_scale": 2}])"),
              HasSubstr("optimizer.groups[0].match: '*.mpl.*' matches no trained parameter of this model; the nearest "
                        "name is *.mlp.*"));
  EXPECT_THAT(refusal(R"([{"match": ["*norm*"], "lr": 1}, {"match": ["*q_proj*"], "lr_scale": 2}])"),
              HasSubstr("optimizer.groups[1].match: matches model.layers.0.self_attn.q_proj.weight, but not "
                        "model.layers.0.self_attn.k_proj.weight, model.layers.0.self_attn.v_proj.weight"));
  EXPECT_THAT(refusal(R"([{"match": ["*norm*"], "lr_scale": 2}])", {"--training.freeze=*norm*"}),
              HasSubstr("matches no trained parameter"));
  const auto complaint = [](const std::string& groups) { return testing::complaint({"--optimizer.groups=" + groups}); };
  EXPECT_THAT(complaint(R"([{"match": ["*"], "lr": 1, "lr_scale": 2}])"), HasSubstr("a group has lr and lr_scale"));
  EXPECT_THAT(complaint(R"([{"match": ["*"]}])"), HasSubstr("element 1 of the list: a group changes nothing"));
  EXPECT_THAT(complaint(R"([{"lr": 1}])"), HasSubstr("a group has no match"));
  EXPECT_THAT(complaint(R"([{"match": ["*"], "lrs": 1}])"), HasSubstr("unknown key \"lrs\" of a group"));
  EXPECT_THAT(complaint(R"([{"match": ["*"], "lr": -1}])"), HasSubstr("lr: "));
  EXPECT_THAT(complaint(R"({"match": ["*"]})"), HasSubstr("optimizer.groups"));
  EXPECT_THAT(testing::complaint({R"(--optimizer.groups=[{"match": ["*"], "lr": 1}])", "--optimizer.lr=0"}),
              HasSubstr("optimizer.lr is 0"));
}

}  // namespace
}  // namespace quench
