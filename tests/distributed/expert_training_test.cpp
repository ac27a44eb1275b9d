// Experts sharded among processes: the same losses and weights as in one, from any checkpoint.

#include <gmock/gmock.h>

#include "tests/distributed/sharded_training.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::ChildResult;
using ::testing::HasSubstr;
using testing::kSameLoss;
using testing::read_file;
using testing::ShardedTraining;

// Processes, and how many of those share the experts out.
struct Layout {
  int ranks = 1;
  std::vector<std::string> options;
  [[nodiscard]] std::string name() const {
    std::string text = std::to_string(ranks);
    for (const std::string& option : options) text += "_" + option.substr(option.rfind('.') + 1);
    for (char& c : text)
      if (c == '=') c = '-';
    return text;
  }
};

class ExpertTraining : public ShardedTraining {
 protected:
  // A dense layer, then two with experts; the term of the loss for even loads takes part.
  static constexpr std::string_view kModel = R"("model_type": "qwen3_moe", "vocab_size": 509, "hidden_size": 32,
      "intermediate_size": 37, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 2, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 11, "norm_topk_prob": true,
      "mlp_only_layers": [0], "output_router_logits": true, "router_aux_loss_coef": 0.02)";
  // Groups, a shared expert, sigmoids, and a bias on the choice that every step moves.
  static constexpr std::string_view kDeepseek = R"("model_type": "deepseek_v3", "vocab_size": 509, "hidden_size": 24,
      "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
      "q_lora_rank": 10, "kv_lora_rank": 12, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 8,
      "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 7, "n_group": 4, "topk_group": 2,
      "n_shared_experts": 2, "first_k_dense_replace": 1)";

  void SetUp() override {
    ShardedTraining::SetUp();
    write_config(std::string(kModel));
  }
  [[nodiscard]] std::string expert_records(const std::string& run) const {
    return read_file(folder_ / run / "metrics" / "experts.jsonl");
  }
};

TEST_F(ExpertTraining, AnyLayoutTrainsTheSame) {
  train(1, "one");
  const std::vector<Layout> layouts = {
      {2, {}},
      {2, {"--parallel.expert=2"}},
      {4, {"--parallel.expert=2"}},
      {4, {"--parallel.expert=4"}},
      {4, {"--parallel.expert=2", "--parallel.shard=2", "--parallel.replicate=2"}},
      {4, {"--parallel.expert=2", "--parallel.reshard_after_forward=false"}},
      {4, {"--parallel.expert=2", "--parallel.reduce_every_micro_batch=false"}},
      {2, {"--parallel.expert=2", "--training.activation_checkpoint=full"}},
      {2, {"--parallel.expert=2", "--training.activation_checkpoint=selective"}},
  };
  for (const Layout& layout : layouts) {
    train(layout.ranks, layout.name(), layout.options);
    expect_same_run(layout.name(), "one");
  }
}

// Layers whose sharded parameters are all frozen: replicas still sum the gradients of their experts.
TEST_F(ExpertTraining, ExpertsAloneTrainTheSame) {
  const std::vector<std::vector<std::string>> ways = {
      {"--training.train=[\"*experts*\"]"},
      {"--lora.rank=2", "--lora.targets=[\"*experts*\"]"},
  };
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const std::string one = fmt::format("one{}", i), four = fmt::format("four{}", i);
    train(1, one, ways[i]);
    std::vector<std::string> more = ways[i];
    more.insert(more.end(), {"--parallel.expert=2", "--parallel.shard=2", "--parallel.replicate=2"});
    train(4, four, more);
    expect_same_run(four, one);
  }
}

TEST_F(ExpertTraining, ClippingKnowsTheNormOfAllExperts) {
  train(1, "one", {"--training.max_norm=0.05"});
  train(4, "four", {"--training.max_norm=0.05", "--parallel.expert=2"});
  expect_same_run("four", "one");
}

TEST_F(ExpertTraining, BiasOnTheChoiceMovesAlike) {
  write_config(std::string(kDeepseek));
  const std::vector<std::string> fast = {"--training.router_bias_speed=0.05"};
  train(1, "one", fast);
  train(1, "still", {"--training.router_bias_speed=0"});
  EXPECT_NE(records("one").at(8).at("loss").as_double(), records("still").at(8).at("loss").as_double());
  for (const Layout& layout : {Layout{2, {"--parallel.expert=2"}}, Layout{4, {"--parallel.expert=2"}}, Layout{3, {}}}) {
    std::vector<std::string> options = layout.options;
    options.push_back(fast.front());
    train(layout.ranks, layout.name(), options);
    expect_same_run(layout.name(), "one");
  }
}

TEST_F(ExpertTraining, ExpertLoadCoversAllProcesses) {
  train(1, "one");
  train(2, "two", {"--parallel.expert=2"});
  std::istringstream one(expert_records("one")), two(expert_records("two"));
  std::string left, right;
  int lines = 0;
  while (std::getline(one, left)) {
    ASSERT_TRUE(std::getline(two, right));
    const Json a = Json::parse(left), b = Json::parse(right);
    EXPECT_EQ(a.at("layers"), b.at("layers")) << ++lines;
    EXPECT_NEAR(a.at("balance_loss").as_double(), b.at("balance_loss").as_double(), 1e-6);
  }
}

// Codes of e4m3 with a scale for 32 elements are off by up to a sixteenth, of rows whose experts' outputs are a part of
// the residual stream.
TEST_F(ExpertTraining, RowsMayTravelInMxfp8) {
  constexpr double kNearLoss = 2e-3;
  train(1, "one");
  train(2, "two", {"--parallel.expert=2", "--parallel.expert_all_to_all=mxfp8"});
  const auto got = records("two"), wanted = records("one");
  ASSERT_EQ(got.size(), wanted.size());
  bool differs = false;
  for (const auto& [step, record] : wanted) {
    const double loss = record.at("loss").as_double(), other = got.at(step).at("loss").as_double();
    EXPECT_NEAR(other, loss, kNearLoss * loss) << step;
    differs |= other != loss;
  }
  EXPECT_TRUE(differs);
}

TEST_F(ExpertTraining, RecipesAndAdaptersTrainNearlyTheSame) {
  // Blocks and columns of an expert's rows have other neighbours where they come from several processes.
  constexpr double kNearLoss = 2e-3;
  const std::vector<std::vector<std::string>> ways = {
      {"--recipe.name=mxfp8", "--training.dtype=bf16"},
      {"--recipe.name=float8_rowwise", "--recipe.filter.include=[\"*experts*\"]"},
      {"--lora.rank=2", "--lora.targets=[\"q_proj\",\"v_proj\"]"},
      {"--lora.rank=2", "--lora.targets=[\"q_proj\",\"gate_proj\",\"down_proj\"]"},
  };
  for (std::size_t i = 0; i < ways.size(); ++i) {
    std::vector<std::string> more = ways[i];
    more.push_back("--training.steps=3");
    const std::string one = fmt::format("one{}", i), two = fmt::format("two{}", i);
    train(1, one, more);
    more.push_back("--parallel.expert=2");
    train(2, two, more);
    const auto got = records(two), wanted = records(one);
    for (const auto& [step, record] : wanted) {
      const double loss = record.at("loss").as_double();
      EXPECT_NEAR(got.at(step).at("loss").as_double(), loss, kNearLoss * loss) << ways[i].front() << ", step " << step;
    }
  }
}

TEST_F(ExpertTraining, CheckpointsGoOnInAnyLayout) {
  train(1, "whole");
  const std::vector<Layout> layouts = {
      {1, {}}, {3, {}}, {2, {"--parallel.expert=2"}}, {4, {"--parallel.expert=2"}}, {4, {"--parallel.expert=4"}}};
  for (const Layout& saved : layouts) {
    std::vector<std::string> first = saved.options;
    first.insert(first.end(), {"--training.steps=4", "--training.global_batch_size=12"});
    const std::string from = "saved" + saved.name();
    train(saved.ranks, from, first);
    for (const Layout& loaded : layouts) {
      const std::string onwards = from + "to" + loaded.name();
      fs::copy(folder_ / from, folder_ / onwards, fs::copy_options::recursive);
      train(loaded.ranks, onwards, loaded.options);
      expect_same_run(onwards, "whole");
    }
  }
}

TEST_F(ExpertTraining, ExportsMatchCheckpoint) {
  train(4, "run", {"--parallel.expert=2", "--export.format=hf", "--export.folder=" + (folder_ / "hf").string()});
  testing::Child exporter({testing::program_path(), "export", "--checkpoint", (folder_ / "run").string(), "--output",
                           (folder_ / "again").string()},
                          {});
  const ChildResult result = exporter.wait();
  ASSERT_EQ(result.status, 0) << result.output;
  expect_same_export(folder_ / "hf", folder_ / "again");
}

TEST_F(ExpertTraining, LayoutsThatDoNotFitAreNamed) {
  const auto refused = [&](int ranks, const std::vector<std::string>& options, const std::string& reason) {
    for (const ChildResult& result : start(ranks, "refused", options)) {
      EXPECT_EQ(result.status, 2) << result.output;
      EXPECT_THAT(result.output, HasSubstr(reason));
    }
  };
  refused(2, {"--parallel.expert=4"}, "4 does not divide the 2 processes that share a copy of the model");
  refused(3, {"--parallel.expert=3"}, "8 experts are not divisible by 3 processes");
  refused(2, {"--parallel.expert=2", "--parallel.shard=1", "--parallel.replicate=2"},
          "2 does not divide the 1 process that share a copy of the model");
  refused(1, {"--parallel.expert_all_to_all=mxfp8"}, "\"mxfp8\", but with parallel.expert 1 there is no all-to-all");
  refused(2, {"--parallel.expert=2", "--parallel.expert_all_to_all=mxfp8", "--model.hidden_size=24"},
          "the model's hidden_size 24 is not a multiple of 32");
  ShardedTraining::SetUp();
  refused(2, {"--parallel.expert=2"}, "2 processes, but Qwen3ForCausalLM has no experts");
}

}  // namespace
}  // namespace quench
