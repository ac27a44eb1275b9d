// Fine-tuning by two processes: what one does, for every recipe that trains for the bits of what is stored, adapters,
// and every optimizer.
//
// A rounding of a gradient's sum may turn a code, and with it a loss by more than any tolerance of roundings. So the
// sums are made the same: each process has one sequence, in which no token stands twice.

#include <gtest/gtest.h>

#include <algorithm>

#include "nn/optim/table.h"
#include "recipes/recipe.h"
#include "tests/distributed/sharded_training.h"

namespace quench {
namespace {

using Options = std::vector<std::string>;

class FineTuningByTwo : public testing::ShardedTraining {
 protected:
  void SetUp() override {
    ShardedTraining::SetUp();
    // Two sequences, which are each step's.
    std::string text;
    for (int i = 0; i < 33; ++i) text += static_cast<char>('!' + i);
    testing::write_file(folder_ / "text.txt", text);
    // Rows of 256 elements have low-bit moments.
    write_config(R"("model_type": "llama", "vocab_size": 259, "hidden_size": 256, "intermediate_size": 128,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32)");
  }
  void expect_same(const Options& options) {
    SCOPED_TRACE(::testing::PrintToString(options));
    const std::string one = fmt::format("one{}", runs_), two = fmt::format("two{}", runs_);
    ++runs_;
    Options all{"--training.steps=5", "--training.global_batch_size=2", "--optimizer.lr=1e-2"};
    all.insert(all.end(), options.begin(), options.end());
    train(1, one, all);
    train(2, two, all);
    expect_near_run(two, one, testing::kSameLoss);
    const auto losses = records(one);
    EXPECT_LT(losses.at(5).at("loss").as_double(), losses.at(1).at("loss").as_double()) << "nothing was trained";
  }

 private:
  int runs_ = 0;
};

std::vector<const recipes::Recipe*> simulating_recipes() {
  std::vector<const recipes::Recipe*> all;
  for (const recipes::Recipe& recipe : recipes::recipe_table())
    if (recipe.capabilities.required == recipes::RequiredLayers::all) all.push_back(&recipe);
  return all;
}

class QatByTwo : public FineTuningByTwo, public ::testing::WithParamInterface<const recipes::Recipe*> {};

TEST_P(QatByTwo, TrainsTheSame) {
  const recipes::Recipe& recipe = *GetParam();
  const std::string name = fmt::format("--recipe.name={}", recipe.name);
  expect_same({name});
  Options all_options{name};
  const auto has = [&](std::string_view key) { return std::ranges::count(recipe.capabilities.keys, key) > 0; };
  if (has("learned_scales")) all_options.insert(all_options.end(), {"--recipe.learned_scales=true"});
  if (has("embedding_bits")) all_options.insert(all_options.end(), {"--recipe.embedding_bits=4"});
  if (all_options.size() > 1) expect_same(all_options);
  expect_same({name, "--lora.rank=4"});
  if (has("weight_grid"))
    for (const char* grid : {"--recipe.weight_grid=binary", "--recipe.weight_grid=seq"})
      expect_same({name, grid, "--recipe.learned_scales=true", "--recipe.scale_dtype=f16"});
}

INSTANTIATE_TEST_SUITE_P(Table, QatByTwo, ::testing::ValuesIn(simulating_recipes()),
                         [](const auto& place) { return std::string(place.param->name); });

class OptimizerByTwo : public FineTuningByTwo, public ::testing::WithParamInterface<std::size_t> {};

TEST_P(OptimizerByTwo, TrainsTheSame) {
  const std::string name = fmt::format("--optimizer.name={}", nn::optimizer_table()[GetParam()].name);
  expect_same({name});
  expect_same({name, "--recipe.name=qat_int8dyn_int4", "--recipe.learned_scales=true"});
}

INSTANTIATE_TEST_SUITE_P(Table, OptimizerByTwo, ::testing::Range<std::size_t>(0, nn::optimizer_table().size()),
                         [](const auto& place) { return std::string(nn::optimizer_table()[place.param].name); });

TEST_F(FineTuningByTwo, SomeParametersTrainTheSame) {
  expect_same({"--training.freeze=model.embed_tokens.weight,*norm.weight"});
  expect_same({R"(--optimizer.groups=[{"match": ["*mlp*"], "lr_scale": 0.5}])", "--training.ema_decay=0.9"});
  expect_same({"--training.train=*.mlp.*", "--training.activation_checkpoint=full"});
}

TEST_F(FineTuningByTwo, TeachersTeachTheSame) {
  const Options qat{"--recipe.name=qat_int4_weight_only", "--distill.ratio=0.5"};
  for (const Options& more : std::vector<Options>{{},
                                                  {"--distill.teacher_weights=float8"},
                                                  {"--distill.hidden.weight=0.5"},
                                                  {"--distill.hidden.weight=0.5", "--lora.rank=4"},
                                                  {"--parallel.reshard_after_forward=false"},
                                                  {"--lora.rank=4"},
                                                  {"--lora.rank=4", "--lora.base=nf4"}}) {
    Options all = qat;
    all.insert(all.end(), more.begin(), more.end());
    expect_same(all);
  }
}

// Shards from 1 MiB on wait in host memory, and so do whole weights of replicas.
TEST_F(FineTuningByTwo, TeachersInHostMemoryTeachTheSame) {
  write_config(R"("model_type": "qwen3_moe", "vocab_size": 259, "hidden_size": 512, "intermediate_size": 1536,
      "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "num_experts": 4,
      "num_experts_per_tok": 2, "moe_intermediate_size": 512, "decoder_sparse_step": 2)");
  int number = 0;
  for (const Options& more : std::vector<Options>{
           {}, {"--distill.teacher_weights=float8"}, {"--parallel.replicate=2"}, {"--parallel.expert=2"}}) {
    SCOPED_TRACE(::testing::PrintToString(more));
    const std::string resident = fmt::format("resident{}", number), offloaded = fmt::format("offloaded{}", number);
    ++number;
    Options all{"--recipe.name=qat_int4_weight_only", "--distill.ratio=0.5", "--training.steps=2",
                "--training.global_batch_size=2", "--checkpoint.enable=false"};
    all.insert(all.end(), more.begin(), more.end());
    train(2, resident, all);
    all.emplace_back("--distill.offload=true");
    train(2, offloaded, all);
    const auto got = records(offloaded), wanted = records(resident);
    ASSERT_EQ(wanted.size(), 2u);
    for (const auto& [step, record] : wanted)
      for (const char* key : {"loss", "grad_norm"})
        EXPECT_EQ(got.at(step).at(key).as_double(), record.at(key).as_double()) << "step " << step << ", " << key;
  }
}

TEST_F(FineTuningByTwo, AdaptersTrainTheSame) {
  for (const Options& more :
       std::vector<Options>{{},
                            {"--lora.dora=true"},
                            {"--lora.base=nf4"},
                            {"--lora.base=float8"},
                            {"--lora.trainable_token_indices=40,41,60", "--model.tie_word_embeddings=true"},
                            {"--lora.trainable_token_indices=40,41,60", "--model.tie_word_embeddings=false"},
                            {"--lora.modules_to_save=embed_tokens,lm_head,norm", "--model.tie_word_embeddings=false"},
                            {"--lora.modules_to_save=embed_tokens,norm", "--model.tie_word_embeddings=true"}}) {
    Options all{"--lora.rank=4"};
    all.insert(all.end(), more.begin(), more.end());
    expect_same(all);
  }
}

}  // namespace
}  // namespace quench
