// Learning from rewards by several processes.

#include "tests/distributed/sharded_training.h"

namespace quench {
namespace {

using testing::ChildResult;
using testing::ShardedTraining;
namespace fs = std::filesystem;

class ShardedGrpo : public ShardedTraining {
 protected:
  void SetUp() override {
    ShardedTraining::SetUp();
    std::string records;
    for (int i = 0; i < 24; ++i) records += fmt::format("{{\"prompt\": \"{}+1=\", \"answer\": \"{}\"}}\n", i, i + 1);
    testing::write_file(folder_ / "prompts.jsonl", records);
  }
  // Four steps of eight prompts.
  [[nodiscard]] std::vector<std::string> options(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {R"(--data.train=[")" + (folder_ / "prompts.jsonl").string() + "\"]",
                                    "--data.seq_len=40",
                                    "--training.global_batch_size=8",
                                    "--training.micro_batch_size=2",
                                    "--training.steps=4",
                                    "--optimizer.lr=1e-2",
                                    "--checkpoint.interval=2",
                                    "--grpo.num_generations=4",
                                    "--grpo.max_completion_length=6",
                                    "--grpo.rewards=regex",
                                    "--grpo.reward_pattern=[0-9a-f]"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Loss and all metrics are those of the other run.
  void expect_same_steps(const std::string& name, const std::string& as) const {
    const auto got = records(name), wanted = records(as);
    ASSERT_EQ(wanted.size(), 4u);
    ASSERT_EQ(got.size(), wanted.size()) << name;
    for (const auto& [step, record] : wanted) {
      const Json& other = got.at(step);
      EXPECT_EQ(other.at("tokens_seen").as_int(), record.at("tokens_seen").as_int()) << name << ", step " << step;
      EXPECT_NEAR(other.at("loss").as_double(), record.at("loss").as_double(), 1e-6) << name << ", step " << step;
      EXPECT_NEAR(other.at("grad_norm").as_double(), record.at("grad_norm").as_double(),
                  (step == 1 ? 1e-5 : 1e-3) * record.at("grad_norm").as_double())
          << name << ", step " << step;
      for (const char* key : {"reward", "reward_std", "frac_reward_zero_std", "completions/mean_length",
                              "completions/clipped_ratio", "frac_groups_skipped"})
        EXPECT_EQ(other.at("objective").at(key).dump(), record.at("objective").at(key).dump())
            << name << ", step " << step << ", " << key;
    }
  }
};

TEST_F(ShardedGrpo, ReplicasAndShardsTrainAsOneProcess) {
  const std::vector<std::vector<std::string>> ways = {
      {"--grpo.loss_type=dapo", "--grpo.scale_rewards=batch"},
      {"--grpo.loss_type=grpo", "--grpo.beta=0.1"},
      {"--grpo.loss_type=dr_grpo", "--grpo.scale_rewards=none", "--lora.rank=4", "--grpo.beta=0.1"}};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    SCOPED_TRACE(ways[i].front());
    const std::string one = fmt::format("one{}", i);
    train(1, one, options(ways[i]));
    for (const char* parallel : {"--parallel.replicate=2", "--parallel.shard=2"}) {
      const std::string two = fmt::format("{}{}", parallel + 11, i);
      std::vector<std::string> way = ways[i];
      way.emplace_back(parallel);
      train(2, two, options(way));
      expect_same_steps(two, one);
    }
  }
}

TEST_F(ShardedGrpo, WeightsThatStayGatheredAndThoseOfFloat8TrainToo) {
  train(2, "kept", options({"--parallel.reshard_after_forward=false"}));
  train(1, "one", options());
  expect_same_steps("kept", "one");
  for (const char* recipe : {"float8_tensorwise", "float8_rowwise"}) {
    const std::string one = std::string(recipe) + "-one", two = std::string(recipe) + "-two";
    const std::vector<std::string> way = options({"--recipe.name=" + std::string(recipe), "--recipe.emulate=true",
                                                  "--recipe.pad=true", "--training.dtype=bf16"});
    train(1, one, way);
    train(2, two, way);
    const auto got = records(two), wanted = records(one);
    ASSERT_EQ(got.size(), 4u);
    EXPECT_EQ(got.at(1).at("objective").at("reward").dump(), wanted.at(1).at("objective").at("reward").dump());
  }
}

TEST_F(ShardedGrpo, TheEstimateIsWhatAProcessReserves) {
  write_config(R"("model_type": "llama", "vocab_size": 512, "hidden_size": 384, "intermediate_size": 1024,
        "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 6)");
  std::string records_of_60_tokens;
  for (char first = 'a'; first < 'q'; ++first)
    records_of_60_tokens += "{\"prompt\": \"" + std::string(1, first) + std::string(59, 'q') + "\"}\n";
  testing::write_file(folder_ / "prompts.jsonl", records_of_60_tokens);
  std::vector<std::string> all =
      options({"--model.max_position_embeddings=256", "--data.seq_len=96", "--grpo.num_generations=8",
               "--training.steps=2", "--checkpoint.enable=false", "--parallel.shard=2"});
  std::erase(all, "--checkpoint.interval=2");
  train(2, "run", all);
  std::vector<std::string> command = {testing::program_path(),
                                      "estimate",
                                      (folder_ / "run.json").string(),
                                      "--device",
                                      "cpu",
                                      "--world-size",
                                      "2",
                                      "--json"};
  command.insert(command.end(), all.begin(), all.end());
  testing::Child child(command, {"OMP_NUM_THREADS=1"});
  const testing::ChildResult result = child.wait();
  ASSERT_EQ(result.status, 0) << result.output;
  const Json estimate = Json::parse(result.output.substr(result.output.find('{')));
  EXPECT_GT(estimate.at("memory_bytes").at("sampling_weights").as_int(), 4 * estimate.at("parameters").as_int());
  const double reserved = records("run").at(2).at("memory_reserved_bytes").as_double();
  EXPECT_NEAR(estimate.at("reserved_bytes").as_double() / reserved, 1.0, 0.05);
}

TEST_F(ShardedGrpo, ARunResumesBitForBit) {
  for (const char* parallel : {"--parallel.replicate=2", "--parallel.shard=2"}) {
    const std::string whole = std::string(parallel + 11) + "-whole", rest = std::string(parallel + 11) + "-rest";
    train(2, whole, options({parallel}));
    train(2, rest,
          options({parallel, "--checkpoint.resume=" + (folder_ / whole / "checkpoints" / "step-2").string(),
                   "--data.cache=" + (folder_ / whole / "cache").string()}));
    const auto got = records(rest), wanted = records(whole);
    ASSERT_EQ(got.size(), 2u);
    for (const auto& [step, record] : got) {
      EXPECT_EQ(record.at("loss").dump(), wanted.at(step).at("loss").dump()) << "step " << step;
      EXPECT_EQ(record.at("objective").dump(), wanted.at(step).at("objective").dump()) << "step " << step;
    }
  }
}

TEST_F(ShardedGrpo, StepsOverTheSameSamplesResumeInBetweenInAnotherNumberOfProcesses) {
  const std::vector<std::string> three = options({"--grpo.num_iterations=3", "--checkpoint.interval=1"});
  train(1, "one", three);
  train(2, "two", three);
  expect_same_steps("two", "one");
  const auto resume = [&](const std::string& name, int ranks) {
    std::vector<std::string> rest = three;
    rest.push_back("--checkpoint.resume=" + (folder_ / "two" / "checkpoints" / "step-2").string());
    train(ranks, name, rest);
    return records(name).at(3);
  };
  const Json wanted = records("two").at(3);
  EXPECT_EQ(resume("two-rest", 2).at("loss").dump(), wanted.at("loss").dump());
  const Json alone = resume("one-rest", 1);
  EXPECT_NEAR(alone.at("loss").as_double(), wanted.at("loss").as_double(), 1e-6);
  EXPECT_EQ(alone.at("objective").at("reward").dump(), wanted.at("objective").at("reward").dump());
}

TEST_F(ShardedGrpo, ARewardThatFailsInOneProcessLosesNoStep) {
  // The third call of each process; only that of one finds the lock free.
  const std::string place = (folder_ / "calls").string();
  const std::string command = "mkdir -p " + place + "; n=$(ls " + place + " | wc -l); touch " + place +
                              "/$$; if [ $n -ge 4 ] && mkdir " + place +
                              ".failed; then exit 3; fi; awk '{print NR % 3}'";
  std::vector<std::string> all = options({"--grpo.reward_command=" + command, "--checkpoint.interval=0"});
  std::replace(all.begin(), all.end(), std::string("--grpo.rewards=regex"), std::string("--grpo.rewards=command"));
  std::erase(all, std::string("--grpo.reward_pattern=[0-9a-f]"));
  std::string output;
  for (const ChildResult& result : start(2, "failed", all)) {
    EXPECT_NE(result.status, 0);
    output += result.output;
  }
  EXPECT_NE(output.find("failed with exit status 3"), std::string::npos) << output;
  EXPECT_TRUE(fs::exists(folder_ / "failed" / "checkpoints" / "step-2")) << output;
}

TEST_F(ShardedGrpo, DistillationOnOwnAnswersIsThatOfOneProcess) {
  std::string records;
  for (int i = 0; i < 24; ++i) records += fmt::format("{{\"prompt\": \"{}+1=\", \"completion\": \"{}\"}}\n", i, i + 1);
  testing::write_file(folder_ / "sums.jsonl", records);
  train(1, "teacher", {"--training.seed=3", "--training.steps=1", "--export.folder=" + (folder_ / "model").string()});
  const std::vector<std::string> way = {R"(--data.train=[")" + (folder_ / "sums.jsonl").string() + "\"]",
                                        "--data.seq_len=24",
                                        "--data.multipack=true",
                                        "--training.global_batch_size=4",
                                        "--training.steps=4",
                                        "--distill.teacher=" + (folder_ / "model").string(),
                                        "--distill.loss=reverse_kl",
                                        "--distill.on_policy=1",
                                        "--distill.max_completion_length=6"};
  train(1, "one", way);
  for (const char* parallel : {"--parallel.replicate=2", "--parallel.shard=2"}) {
    std::vector<std::string> two = way;
    two.emplace_back(parallel);
    train(2, parallel + 11, two);
    expect_near_run(parallel + 11, "one", 1e-4);
  }
}

}  // namespace
}  // namespace quench
