// lora.modules_to_save: runs, exports, the base without adapters, mistakes.

#include "recipes/lora/saved_modules.h"

#include <gmock/gmock.h>

#include "recipes/base_kernels.h"
#include "tests/train/config/config_testing.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/model_folder/model_folder.h"
#include "train/model_folder/peft_folder.h"
#include "train/session/adapter_setup.h"
#include "train/step/meta_batch.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Options = std::vector<std::string>;

constexpr const char* kTable = "model.embed_tokens.modules_to_save.weight";

class SavedModulesOfRuns : public ::testing::Test {
 protected:
  // Three steps over random weights.
  [[nodiscard]] RunConfig with_adapters(const std::string& name, const Options& options) const {
    const Options common{"--training.steps=3", "--lora.rank=2",
                         "--export.folder=" + (tiny_.folder(name) / "export").string()};
    return tiny_.config(name, joined(joined(common, model_), options));
  }
  // The same weights.
  [[nodiscard]] std::unique_ptr<nn::CausalLm> base() const {
    const RunConfig config = tiny_.config("base", model_);
    ModelSetup setup = build_model(ResolvedConfig(config), Device{});
    fill_model(*setup.model, config);
    return std::move(setup.model);
  }
  [[nodiscard]] static Options joined(Options first, const Options& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }
  [[nodiscard]] static std::vector<float> values(const Tensor& tensor) {
    return {tensor.data<float>(), tensor.data<float>() + tensor.numel()};
  }
  [[nodiscard]] static std::vector<float> logits(nn::CausalLm& model) {
    const autograd::NoGrad no_grad;
    constexpr std::int64_t kCount = 9;
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < kCount; ++i) ids.push_back(i * 5 % 64);
    return values(model.logits(model.hidden(Tensor::from_values<std::int32_t>({kCount}, ids),
                                            model.make_context({{0, kCount, 0, kCount}}, kCount))));
  }
  [[nodiscard]] static std::unique_ptr<nn::CausalLm> load(const std::filesystem::path& folder) {
    auto model = std::make_unique<nn::CausalLm>(read_model_config(folder), nn::ParameterOptions{});
    load_weights(*model, folder);
    return model;
  }
  static void expect_near(const std::vector<float>& got, const std::vector<float>& wanted, float bound) {
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], bound) << i;
  }

  Options model_{"--model.hidden_size=64", "--model.intermediate_size=64", "--model.tie_word_embeddings=false"};
  testing::TinyRun tiny_;
};

// Merged and over the base, over dense and quantized bases; untied and tied.
TEST_F(SavedModulesOfRuns, AreExported) {
  for (const bool tied : {false, true}) {
    if (tied) model_.back() = "--model.tie_word_embeddings=true";
    for (const std::string form : {"dense", "float8"}) {
      SCOPED_TRACE(::testing::Message() << form << (tied ? ", tied" : ""));
      const std::string name = form + (tied ? "-tied" : "-untied");
      const Options common{"--lora.modules_to_save=embed_tokens,lm_head,norm", "--lora.base=" + form};
      tiny_.run(with_adapters(name + "-peft", joined({"--export.format=peft"}, common)));
      tiny_.run(with_adapters(name + "-hf", joined({"--export.format=hf"}, common)));
      const auto merged = load(tiny_.folder(name + "-hf") / "export");
      CheckpointReader reader(tiny_.checkpoint(name + "-peft", 3));
      EXPECT_EQ(reader.find("model.embed_tokens.weight"), nullptr) << "the base is not stored";
      EXPECT_EQ(reader.find("lm_head.modules_to_save.weight") != nullptr, !tied);
      EXPECT_NE(reader.find("model.layers.1.input_layernorm.modules_to_save.weight"), nullptr);
      const Tensor copy = Tensor::empty({64, 64}, DType::f32);
      reader.read(kTable, copy);
      const auto original = base();
      EXPECT_NE(values(copy), values(original->parameters().front()->variable.value())) << "it is trained";
      EXPECT_EQ(values(copy), values(merged->parameters().front()->variable.value()));
      if (form != "dense") continue;
      const Json config = Json::parse_file(tiny_.folder(name + "-peft") / "export" / "adapter_config.json");
      EXPECT_EQ(config.at("modules_to_save").dump(),
                tied ? R"(["embed_tokens","norm"])" : R"(["embed_tokens","lm_head","norm"])");
      EXPECT_EQ(config.find("ensure_weight_tying") != nullptr, tied);
      const auto adapters = load_adapter(*original, tiny_.folder(name + "-peft") / "export", {});
      const std::vector<float> before = logits(*original);
      adapters->attach();
      expect_near(logits(*original), logits(*merged), 1e-4f);
      EXPECT_NE(logits(*original), before);
      adapters->detach();
      EXPECT_EQ(logits(*original), before);
      adapters->merge();
      expect_near(logits(*original), logits(*merged), 1e-4f);
    }
  }
}

TEST_F(SavedModulesOfRuns, BeginAsTheBaseAndLeaveIt) {
  for (const Options& more :
       std::vector<Options>{{}, {"--lora.base=nf4"}, {"--recipe.name=qat_int8dyn_int4", "--recipe.embedding_bits=4"}}) {
    SCOPED_TRACE(::testing::PrintToString(more));
    RunConfig run = with_adapters("begin", joined({"--lora.modules_to_save=embed_tokens,lm_head,norm"}, more));
    ModelSetup setup = build_model(ResolvedConfig(run), Device{});
    const std::string hash = fill_adapted(setup, run);
    const std::vector<float> begun = logits(*setup.model);
    run.lora->modules_to_save.clear();
    ModelSetup plain = build_model(ResolvedConfig(run), Device{});
    EXPECT_EQ(fill_adapted(plain, run), hash);
    EXPECT_EQ(begun, logits(*plain.model));
    std::vector<float> without;
    {
      const recipes::BaseKernels kernels(*plain.model);
      without = logits(*plain.model);
    }
    for (const recipes::SavedModules::Module& module : setup.adapters->saved().modules()) {
      float* data = module.copy->variable.value().data<float>();
      for (std::int64_t i = 0; i < module.copy->numel(); ++i) data[i] *= 1.5f;
      module.copy->mark_changed();
    }
    EXPECT_NE(logits(*setup.model), begun);
    const recipes::BaseKernels kernels(*setup.model);
    EXPECT_EQ(logits(*setup.model), without);
  }
}

// Rows of the embedding alone; the others stay.
TEST_F(SavedModulesOfRuns, TokenRowsAreTrainedAlone) {
  for (const char* tie : {"--model.tie_word_embeddings=false", "--model.tie_word_embeddings=true"}) {
    SCOPED_TRACE(tie);
    model_.back() = tie;
    const std::string name = std::string("rows-") + (std::string_view(tie).ends_with("true") ? "tied" : "untied");
    const Options common{"--lora.trainable_token_indices=5,60,0"};
    tiny_.run(with_adapters(name, joined({"--export.format=hf"}, common)));
    const auto merged = load(tiny_.folder(name) / "export"), original = base();
    const std::vector<float> now = values(merged->parameters().front()->variable.value()),
                             before = values(original->parameters().front()->variable.value());
    for (std::size_t id = 0; id < 64; ++id) {
      const bool trained = id == 0 || id == 5 || id == 60;
      const auto row = [&](const std::vector<float>& table) {
        return std::vector<float>(table.begin() + static_cast<std::ptrdiff_t>(id * 64),
                                  table.begin() + static_cast<std::ptrdiff_t>(id * 64 + 64));
      };
      EXPECT_EQ(row(now) != row(before), trained) << id;
    }
    CheckpointReader reader(tiny_.checkpoint(name, 3));
    EXPECT_EQ(reader.find("model.embed_tokens.weight"), nullptr);
    EXPECT_EQ(reader.at("model.embed_tokens.token_adapter.trainable_tokens_delta").shape, Shape({3, 64}));
  }
}

TEST_F(SavedModulesOfRuns, AreFoundByTheEndOfTheirNames) {
  const auto chosen = [&](const std::string& patterns, const Options& more = {}) {
    const RunConfig run = tiny_.config("names", joined({"--lora.rank=2", "--lora.modules_to_save=" + patterns}, more));
    const ModelSetup setup = build_model(ResolvedConfig(run), kMeta, Device{});
    Options names;
    for (const recipes::SavedModules::Module& module : setup.adapters->saved().modules()) names.push_back(module.name);
    return names;
  };
  EXPECT_THAT(chosen("model.norm,*.1.*norm"),
              ElementsAre("model.layers.1.input_layernorm", "model.layers.1.post_attention_layernorm", "model.norm"));
  EXPECT_THAT(chosen("q_norm", {"--model.model_type=qwen3", "--model.num_hidden_layers=1"}),
              ElementsAre("model.layers.0.self_attn.q_norm"));
  EXPECT_THAT(chosen("lm_head"), ElementsAre("model.embed_tokens")) << "tied";
  EXPECT_THAT(chosen("lm_head", model_), ElementsAre("lm_head"));
}

TEST_F(SavedModulesOfRuns, MistakesAreNamed) {
  const auto refusal = [&](const std::string& patterns) -> std::string {
    try {
      (void)build_model(ResolvedConfig(tiny_.config("bad", {"--lora.rank=2", "--lora.modules_to_save=" + patterns})),
                        kMeta, Device{});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      return error.what();
    }
    return "accepted";
  };
  const std::string listed =
      "matches none of the modules that can be trained whole: embed_tokens, input_layernorm, post_attention_layernorm, "
      "norm";
  EXPECT_THAT(refusal("embed_token"), HasSubstr("lora.modules_to_save: 'embed_token' " + listed));
  EXPECT_THAT(refusal("norm,q_proj"), HasSubstr("'q_proj' " + listed));
  const auto tokens = [&](const std::string& ids, const Options& more = {}) -> std::string {
    try {
      (void)build_model(
          ResolvedConfig(tiny_.config("bad", joined({"--lora.rank=2", "--lora.trainable_token_indices=" + ids}, more))),
          kMeta, Device{});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(tokens("3,64"), HasSubstr("lora.trainable_token_indices: 64 is no token of this model, whose "
                                        "vocabulary has 64"));
  EXPECT_THAT(tokens("3,9,3"), HasSubstr("lora.trainable_token_indices: 3 is listed twice"));
  EXPECT_THAT(tokens("-1"), HasSubstr("lora.trainable_token_indices"));
  EXPECT_THAT(tokens("3", {"--lora.modules_to_save=embed_tokens"}),
              HasSubstr("lora.modules_to_save trains the whole embedding; drop one of the two"));
  tiny_.run(tiny_.config("run", {"--training.steps=2", "--lora.rank=2", "--lora.modules_to_save=norm"}));
  try {
    tiny_.run(tiny_.config("run", {"--training.steps=4", "--lora.rank=2"}));
    FAIL() << "resumed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("lora.modules_to_save"));
  }
}

}  // namespace
}  // namespace quench
