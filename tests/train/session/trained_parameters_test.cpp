// training.freeze and training.train.

#include "train/session/trained_parameters.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "nn/optim/table.h"
#include "recipes/convert.h"
#include "tests/train/config/config_testing.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/plan/estimate.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Options = std::vector<std::string>;
using Gradients = std::map<std::string, std::vector<std::byte>>;

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  const auto* data = static_cast<const std::byte*>(tensor.raw_data());
  return {data, data + tensor.nbytes()};
}

class TrainedParameters : public ::testing::Test {
 protected:
  [[nodiscard]] ModelSetup make(const Options& options) const {
    ModelSetup setup = build_model(ResolvedConfig(config(options)), Device{});
    fill_model(*setup.model, config(options));
    return setup;
  }
  [[nodiscard]] RunConfig config(const Options& options) const { return tiny_.config("run", options); }

  // Gradients of one pass, by parameter.
  [[nodiscard]] static Gradients gradients(const ModelSetup& setup, autograd::Recompute recompute) {
    constexpr std::int64_t kTokens = 12;
    std::vector<std::int32_t> ids, labels;
    for (std::int32_t i = 0; i < kTokens; ++i) {
      ids.push_back(i * 7 % 64);
      labels.push_back(i * 11 % 64);
    }
    const nn::CausalLm& model = *setup.model;
    nn::ForwardContext context = model.make_context({{0, kTokens, 0, kTokens}}, kTokens);
    context.recompute = recompute;
    autograd::Tape tape(recompute);
    {
      const autograd::TapeScope scope(tape);
      tape.backward(model.loss(Tensor::from_values<std::int32_t>({kTokens}, ids),
                               Tensor::from_values<std::int32_t>({kTokens}, labels), context, 1.0f));
    }
    Gradients all;
    for (const nn::Parameter* parameter : setup.model->parameters())
      if (parameter->variable.requires_grad() && parameter->variable.grad().defined())
        all[parameter->name] = bytes_of(parameter->variable.grad());
    return all;
  }

  // Names of the pieces of the parameters of one kind, by its name without layer numbers.
  [[nodiscard]] static std::map<std::string, std::string> kinds(const ModelSetup& setup) {
    std::map<std::string, std::string> all;
    for (const nn::Parameter* parameter : setup.model->parameters())
      for (const nn::ParameterPiece& piece : parameter->pieces)
        if (parameter->variable.requires_grad()) {
          std::string& list = all[recipes::without_index(parameter->name)];
          list += (list.empty() ? "" : ",") + piece.hf_name;
        }
    return all;
  }

  [[nodiscard]] std::string refusal(const Options& options) const {
    try {
      (void)make(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      return error.what();
    }
    return "accepted";
  }

  testing::TinyRun tiny_;
};

constexpr const char* kGated = "--model.intermediate_size=64";

TEST_F(TrainedParameters, HaveTheGradientsOfFullTraining) {
  const std::vector<Options> models{
      {},
      {"--model.model_type=qwen3", "--model.tie_word_embeddings=false", "--training.dtype=bf16"},
      {"--model.model_type=qwen2"},
      {"--model.model_type=mixtral", "--model.num_local_experts=4", "--model.num_experts_per_tok=2"},
      {"--recipe.name=float8_rowwise", "--training.dtype=bf16", "--recipe.emulate=true", kGated},
      {"--recipe.name=qat_int8dyn_int4", "--recipe.learned_scales=true", kGated}};
  for (const Options& options : models)
    for (const autograd::Recompute recompute :
         {autograd::Recompute::none, autograd::Recompute::selective, autograd::Recompute::full}) {
      SCOPED_TRACE(::testing::PrintToString(options));
      SCOPED_TRACE(static_cast<int>(recompute));
      const ModelSetup whole = make(options);
      const Gradients wanted = gradients(whole, recompute);
      for (const auto& [kind, names] : kinds(whole)) {
        if (kind.ends_with("weight_scale")) continue;  // frozen with the weight
        SCOPED_TRACE(kind);
        Options some = options;
        some.push_back("--training.freeze=" + names);
        const Gradients rest = gradients(make(some), recompute);
        EXPECT_LT(rest.size(), wanted.size());
        for (const auto& [name, values] : rest) EXPECT_EQ(values, wanted.at(name)) << name << " of the rest";
        some.back() = "--training.train=" + names;
        for (const auto& [name, values] : gradients(make(some), recompute)) {
          EXPECT_EQ(recipes::without_index(name), kind);
          EXPECT_EQ(values, wanted.at(name)) << name << " alone";
        }
      }
    }
}

TEST_F(TrainedParameters, FreezeWins) {
  const ModelSetup setup = make({"--training.train=*mlp*", "--training.freeze=*layers.0.*"});
  EXPECT_EQ(trained_elements(*setup.model), 3 * 32 * 48);
  EXPECT_THAT(describe_frozen(*setup.model),
              HasSubstr("frozen: model.embed_tokens.weight, model.layers.*.input_layernorm.weight, "));
  EXPECT_THAT(describe_frozen(*make({"--training.freeze=*layers.0.*"}).model),
              HasSubstr("frozen: model.layers.*.input_layernorm.weight (1 of 2), "));
}

TEST_F(TrainedParameters, MistakesAreNamed) {
  EXPECT_THAT(refusal({"--training.freeze=*.qproj.*"}),
              HasSubstr("training.freeze: '*.qproj.*' matches no parameter of this model; the nearest name is "
                        "*.q_proj.*"));
  EXPECT_THAT(refusal({"--training.train=lm_head.weight"}),
              HasSubstr("the nearest name is model.embed_tokens.weight (the head is tied to it)"));
  EXPECT_THAT(refusal({"--training.train=*.q_proj.*,*.v_proj.*"}),
              HasSubstr("training.train: matches model.layers.0.self_attn.q_proj.weight, "
                        "model.layers.0.self_attn.v_proj.weight, but not model.layers.0.self_attn.k_proj.weight, which "
                        "are one parameter here (model.layers.0.self_attn.qkv_proj.weight)"));
  EXPECT_THAT(refusal({"--training.freeze=*"}), HasSubstr("training.freeze: no parameter is left to train"));
  EXPECT_THAT(refusal({"--training.freeze=*norm*", "--training.train=model.norm.weight"}),
              HasSubstr("training.train: no parameter is left to train"));
  EXPECT_THAT(testing::complaint({"--lora.rank=4", "--training.freeze=*norm*"}),
              HasSubstr("training.freeze: has no effect with lora"));
  EXPECT_THAT(testing::complaint({"--lora.rank=4", "--training.train=*norm*"}),
              HasSubstr("training.train: has no effect with lora"));
}

TEST_F(TrainedParameters, FrozenOnesStayAndHaveNoState) {
  const std::string freeze = "--training.freeze=model.embed_tokens.weight,*layers.0.*";
  tiny_.run(tiny_.config("run", {freeze, "--training.steps=4", "--checkpoint.interval=2"}));
  const ModelSetup begun = make({freeze});
  CheckpointReader reader(tiny_.checkpoint("run", 4));
  std::size_t frozen = 0;
  for (const nn::Parameter* parameter : begun.model->parameters()) {
    const auto stored = testing::tensor_bytes(reader, reader.at(parameter->name));
    EXPECT_EQ(stored == bytes_of(parameter->variable.value()), parameter->frozen) << parameter->name;
    EXPECT_EQ(reader.find("optimizer.exp_avg." + parameter->name) == nullptr, parameter->frozen) << parameter->name;
    frozen += parameter->frozen ? 1 : 0;
  }
  EXPECT_EQ(frozen, 7u);
}

// A router's expert bias is updated without a gradient.
TEST_F(TrainedParameters, AFrozenExpertBiasStays) {
  Options router{"--training.steps=2",
                 "--model.model_type=deepseek_v3",
                 "--model.num_key_value_heads=4",
                 "--model.n_routed_experts=4",
                 "--model.num_experts_per_tok=2",
                 "--model.moe_intermediate_size=8",
                 "--model.first_k_dense_replace=1"};
  for (const char* one : {"n_group", "topk_group"}) router.push_back(fmt::format("--model.{}=1", one));
  for (const char* width : {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"})
    router.push_back(fmt::format("--model.{}=8", width));
  const auto changed = [&](const std::string& name, const Options& more) {
    Options all = router;
    all.insert(all.end(), more.begin(), more.end());
    tiny_.run(tiny_.config(name, all));
    CheckpointReader reader(tiny_.checkpoint(name, 2));
    for (const TensorRecord& record : reader.manifest().tensors) {
      if (!record.name.ends_with("choice_bias")) continue;
      const auto bytes = testing::tensor_bytes(reader, record);
      return std::ranges::any_of(bytes, [](std::byte byte) { return byte != std::byte{0}; });
    }
    ADD_FAILURE() << "no expert bias";
    return false;
  };
  EXPECT_TRUE(changed("trained", {}));
  EXPECT_FALSE(changed("frozen", {"--training.freeze=*e_score_correction_bias"}));
  EXPECT_FALSE(changed("others", {"--training.train=*mlp*proj*"}));
}

TEST_F(TrainedParameters, ResumeIsExactAndRefusesOtherParameters) {
  const Options few{"--training.train=*mlp*,model.norm.weight", "--checkpoint.interval=0",
                    "--lr_schedule.decay_steps=6"};
  const auto with = [&](const std::string& more) {
    Options all = few;
    all.push_back(more);
    return all;
  };
  tiny_.run(tiny_.config("whole", with("--training.steps=6")));
  tiny_.run(tiny_.config("parts", with("--training.steps=3")));
  tiny_.run(tiny_.config("parts", with("--training.steps=6")));
  EXPECT_EQ(tiny_.losses("parts"), tiny_.losses("whole"));
  testing::expect_same_tensors(tiny_.checkpoint("parts", 6), tiny_.checkpoint("whole", 6));
  try {
    tiny_.run(tiny_.config("parts", {"--training.steps=8", "--training.train=*mlp*"}));
    FAIL() << "resumed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("training.train"));
  }
}

TEST_F(TrainedParameters, AreEstimated) {
  const auto estimate = [&](const Options& options) { return estimate_run(ResolvedConfig(config(options)), Device{}); };
  const RunEstimate whole = estimate({}), last = estimate({"--training.train=*layers.1.mlp.*"});
  EXPECT_EQ(last.trained_parameters, 3 * 32 * 48);
  EXPECT_THAT(to_string(last), HasSubstr(", 4,608 trained"));
  EXPECT_THAT(to_string(whole), Not(HasSubstr("trained")));
  const auto bytes = [](const RunEstimate& e, MemoryCategory category) {
    return e.device.peak_by_category[static_cast<std::size_t>(category)];
  };
  EXPECT_LT(bytes(last, MemoryCategory::optimizer), bytes(whole, MemoryCategory::optimizer) / 2);
  EXPECT_LT(bytes(last, MemoryCategory::gradients), bytes(whole, MemoryCategory::gradients));
  EXPECT_LT(last.flops_per_token.total(), whole.flops_per_token.total());
}

}  // namespace
}  // namespace quench
