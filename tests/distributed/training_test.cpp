// Training by several processes, through the program: the same losses and samples as by one, from any checkpoint.

#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "tests/distributed/sharded_training.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::ChildResult;
using ::testing::HasSubstr;
using testing::kSameLoss;
using testing::read_file;
using testing::ShardedTraining;

TEST_F(ShardedTraining, AnyNumberOfProcessesTrainsTheSame) {
  train(1, "one");
  for (const int ranks : {2, 3, 4}) {
    const std::string name = fmt::format("ranks{}", ranks);
    train(ranks, name);
    expect_same_run(name, "one");
  }
}

TEST_F(ShardedTraining, EveryWayToShareTrainsTheSame) {
  train(1, "one");
  const std::vector<std::vector<std::string>> ways = {
      {"--parallel.shard=2", "--parallel.replicate=2"},
      {"--parallel.shard=1", "--parallel.replicate=4"},
      {"--parallel.reshard_after_forward=false"},
      {"--parallel.reduce_every_micro_batch=false"},
      {"--parallel.reshard_after_forward=false", "--parallel.reduce_every_micro_batch=false", "--parallel.shard=2",
       "--parallel.replicate=2"},
      {"--training.activation_checkpoint=full"},
      {"--training.activation_checkpoint=selective"},
  };
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const std::string name = fmt::format("way{}", i);
    train(4, name, ways[i]);
    expect_same_run(name, "one");
  }
}

// Sums of gradients are used and freed as soon as they are complete.
TEST_F(ShardedTraining, UpdatesInTheBackwardPassTrainTheSame) {
  const std::vector<std::string> once{"--training.max_norm=0"};
  train(1, "one", once);
  std::vector<std::string> within = once;
  within.emplace_back("--optimizer.update_in_backward=true");
  train(1, "one-within", within);
  expect_same_run("one-within", "one");
  const std::vector<std::pair<int, std::vector<std::string>>> ways = {
      {2, {}},
      {3, {"--training.activation_checkpoint=full"}},
      {4, {"--parallel.shard=2", "--parallel.replicate=2"}},
      {2, {"--parallel.shard=1", "--parallel.replicate=2"}},
      {2, {"--parallel.reduce_every_micro_batch=false", "--parallel.reshard_after_forward=false"}},
      {2, {"--parallel.context=2"}},
  };
  for (std::size_t i = 0; i < ways.size(); ++i) {
    auto [ranks, options] = ways[i];
    options.insert(options.end(), within.begin(), within.end());
    const std::string name = fmt::format("within{}", i);
    train(ranks, name, options);
    expect_same_run(name, "one");
  }
}

// Shards of embedding and head are larger than a mebibyte: gathered by themselves, and the head's gradient is reduced
// in place. No number of processes divides the vocabulary.
TEST_F(ShardedTraining, LargeHeadsTrainTheSame) {
  write_config(R"("model_type": "qwen3", "vocab_size": 509, "hidden_size": 1600, "intermediate_size": 37,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2)");
  // Adam's first updates turn the last bits of small gradients into steps of the rate, which is low here.
  const std::vector<std::string> options = {"--training.steps=3", "--checkpoint.enable=false", "--optimizer.lr=1e-5",
                                            "--training.activation_checkpoint=selective"};
  train(1, "one", options);
  for (const int ranks : {2, 3}) {
    const std::string name = fmt::format("ranks{}", ranks);
    train(ranks, name, options);
    expect_same_run(name, "one");
  }
  std::vector<std::string> once = options;
  once.emplace_back("--parallel.reduce_every_micro_batch=false");
  train(2, "once", once);
  expect_same_run("once", "one");
  // A float8 head releases its gathered weight within the loss; bf16, two replicas.
  std::vector<std::string> low = options;
  low.insert(low.end(), {"--training.dtype=bf16", "--recipe.name=float8_rowwise", "--recipe.emulate=true",
                         "--recipe.pad=true", "--recipe.filter.exclude="});
  train(1, "low", low);
  low.emplace_back("--parallel.replicate=2");
  train(4, "low4", low);
  expect_near_run("low4", "low", 1e-3);
}

// Every process records the amax of its rows; the history is that of all.
TEST_F(ShardedTraining, DelayedScalingTrainsTheSame) {
  const std::vector<std::string> delayed = {"--recipe.name=float8_tensorwise", "--recipe.pad=true",
                                            "--recipe.scaling=delayed", "--recipe.amax_history=3"};
  train(1, "one", delayed);
  train(2, "ranks2", delayed);
  expect_same_run("ranks2", "one");
  std::vector<std::string> replicated = delayed;
  replicated.insert(replicated.end(), {"--parallel.shard=2", "--parallel.replicate=2"});
  train(4, "ranks4", replicated);
  expect_same_run("ranks4", "one");
  // Saved by two processes, resumed by three.
  fs::create_directories(folder_ / "onwards");
  std::vector<std::string> half = delayed;
  half.emplace_back("--training.steps=4");
  train(2, "onwards", half);
  train(3, "onwards", delayed);
  expect_same_run("onwards", "one");
}

TEST_F(ShardedTraining, TiedEmbeddingsAndClippingTrainTheSame) {
  const std::vector<std::string> clipped = {"--training.max_norm=0.05"};
  const std::pair<std::string, std::string> models[] = {
      {"llama", R"("model_type": "llama", "vocab_size": 509, "hidden_size": 16, "intermediate_size": 20,
      "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 1, "tie_word_embeddings": true)"},
      {"gemma2", R"("model_type": "gemma2", "vocab_size": 509, "hidden_size": 16, "intermediate_size": 20,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 6, "sliding_window": 5,
      "attn_logit_softcapping": 2, "final_logit_softcapping": 3)"},
      {"gpt-oss", R"("model_type": "gpt_oss", "vocab_size": 509, "hidden_size": 16, "intermediate_size": 20,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 6, "sliding_window": 5,
      "num_local_experts": 4, "num_experts_per_tok": 2)"},
      // Projections stored as one; a gate of one row, which one rank holds.
      {"phi3", R"("model_type": "phi3", "vocab_size": 509, "hidden_size": 16, "intermediate_size": 20,
      "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "partial_rotary_factor": 0.5)"},
      {"qwen2-moe", R"("model_type": "qwen2_moe", "vocab_size": 509, "hidden_size": 16, "intermediate_size": 20,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "num_experts": 4,
      "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 10)"}};
  for (const auto& [name, model] : models) {
    write_config(model);
    train(1, name, clipped);
    train(3, name + "-ranks3", clipped);
    expect_same_run(name + "-ranks3", name);
  }
}

TEST_F(ShardedTraining, RecordsSayWhatProcessesWaitFor) {
  train(2, "run");
  const auto all = records("run");
  for (const auto& [step, record] : all) {
    EXPECT_EQ(record.at("devices").as_int(), 2);
    const double share = record.at("communication_share").as_double();
    EXPECT_GT(share, 0) << step;
    EXPECT_LE(share, 1) << step;
    ASSERT_EQ(record.at("rank_ms").as_array().size(), 2U);
    for (const Json& ms : record.at("rank_ms").as_array())
      EXPECT_LE(ms.as_double(), record.at("step_ms").as_double() * 2);
    EXPECT_NEAR(record.at("tokens_per_second_per_device").as_double() * 2, record.at("tokens_per_second").as_double(),
                1e-6 * record.at("tokens_per_second").as_double());
  }
}

// The next step's weights are on their way when the last step is done.
TEST_F(ShardedTraining, ARunEndsWithoutBreakingOffWhatIsOnItsWay) {
  write_config(R"("model_type": "llama", "vocab_size": 509, "hidden_size": 768, "intermediate_size": 3072,
      "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4)");
  for (const ChildResult& result :
       start(2, "run",
             {"--training.steps=1", "--lr_schedule.warmup_steps=0", "--training.global_batch_size=2", "--lora.rank=1",
              "--checkpoint.enable=false"})) {
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.output, ::testing::Not(HasSubstr("error"))) << result.output;
  }
}

// A checkpoint of several processes is resumed by any number.
TEST_F(ShardedTraining, CheckpointsGoOnInAnyNumberOfProcesses) {
  train(1, "whole");
  for (const int saved : {1, 2, 3, 4}) {
    const std::string name = fmt::format("saved{}", saved);
    train(saved, name, {"--training.steps=4", "--training.global_batch_size=12"});
    for (const int loaded : {1, 2, 3, 4}) {
      const std::string onwards = fmt::format("{}-{}", name, loaded);
      fs::copy(folder_ / name, folder_ / onwards, fs::copy_options::recursive);
      train(loaded, onwards, {});
      expect_same_run(onwards, "whole");
    }
  }
}

TEST_F(ShardedTraining, ExportsOfSeveralProcessesMatchCheckpoint) {
  train(3, "run", {"--export.format=hf", "--export.folder=" + (folder_ / "hf").string()});
  testing::Child exporter({testing::program_path(), "export", "--checkpoint", (folder_ / "run").string(), "--output",
                           (folder_ / "again").string()},
                          {});
  const ChildResult result = exporter.wait();
  ASSERT_EQ(result.status, 0) << result.output;
  expect_same_export(folder_ / "hf", folder_ / "again");
}

// Kernels that train parameters of their own make way for calibration, and are there when the run ends.
TEST_F(ShardedTraining, CalibratedExportsMatchCheckpoint) {
  write_config(R"("model_type": "qwen3", "vocab_size": 509, "hidden_size": 64, "intermediate_size": 192,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16)");
  const std::string text = (folder_ / "text.txt").string(), run = (folder_ / "run").string();
  train(3, "run",
        {"--training.steps=3", "--recipe.name=qat_int4_weight_only", "--recipe.learned_scales=true",
         "--export.scheme=int4_weight_only_g32", "--export.method=gptq", "--export.calibration=" + text,
         "--export.calibration_samples=12", "--export.calibration_seq_len=16"});
  testing::Child exporter(
      {testing::program_path(), "quantize", "--checkpoint", run, "--scheme", "int4_weight_only_g32", "--method", "gptq",
       "--calibration", text, "--calibration-samples", "12", "--calibration-seq-len", "16", "--output", run + "-again"},
      {});
  const ChildResult result = exporter.wait();
  ASSERT_EQ(result.status, 0) << result.output;
  expect_same_export(folder_ / "run" / "export", folder_ / "run-again");
}

TEST_F(ShardedTraining, EvaluationAndSampleTextsMatchOneProcess) {
  const std::vector<std::string> more = {"--data.validation=" + (folder_ / "text.txt").string(),
                                         "--evaluation.interval=4",
                                         "--evaluation.steps=5",
                                         "--evaluation.micro_batch_size=1",
                                         "--evaluation.prompts=[\"line 3\"]",
                                         "--evaluation.sample_tokens=6"};
  train(1, "one", more);
  // As many sequences: five batches of each process.
  train(3, "ranks3", more);
  const auto last_line = [&](const std::string& run, const std::string& file) {
    const std::string text = read_file(folder_ / run / "metrics" / file);
    return Json::parse(text.substr(text.rfind('\n', text.size() - 2) + 1));
  };
  const auto loss = [](const Json& record) { return record.at("values").at("loss").as_double(); };
  const Json one = last_line("one", "evaluations.jsonl"), three = last_line("ranks3", "evaluations.jsonl");
  EXPECT_EQ(three.at("tokens").as_int(), one.at("tokens").as_int());
  EXPECT_NEAR(loss(three), loss(one), kSameLoss * loss(one));
  EXPECT_EQ(last_line("ranks3", "samples.jsonl").at("text").as_string(),
            last_line("one", "samples.jsonl").at("text").as_string());
}

TEST_F(ShardedTraining, WrongNumbersOfProcessesAreNamed) {
  for (const ChildResult& result : start(2, "run", {"--parallel.shard=3"})) {
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.output, HasSubstr("shard 3 x replicate 1 is 3, but the run has 2 processes"));
  }
  for (const ChildResult& result : start(2, "run", {"--training.global_batch_size=5"})) {
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.output, HasSubstr("5 is not divisible by micro_batch_size 1 x 2 ranks = 2; nearest: 4 or 6"));
  }
  EXPECT_THAT(start(1, "run", {"--parallel.replicate=2"}).front().output,
              HasSubstr("2 replicas of the model are not possible with 1 process"));
}

TEST_F(ShardedTraining, DifferentConfigsAreRefusedByAll) {
  testing::Ranks ranks(2);
  for (int rank = 0; rank < 2; ++rank)
    ranks.start(rank,
                {testing::program_path(), "train", (folder_ / "run.json").string(), "--device=cpu",
                 "--run.folder=" + (folder_ / "run").string(), fmt::format("--optimizer.lr={}", 0.01 * (1 + rank))});
  for (const ChildResult& result : ranks.wait()) {
    EXPECT_EQ(result.status, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr("optimizer.lr: 0.01 on rank 0, 0.02 on rank 1"));
  }
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

// Only rank 0 writes there: the others give its reason, and no step is taken.
TEST_F(ShardedTraining, FoldersThatCannotBeMadeAreNamedByAll) {
  for (const std::string key : {"run.folder", "checkpoint.folder", "export.folder"}) {
    const std::string folder = "/proc/none";
    const std::vector<ChildResult> results = start(2, "run", {fmt::format("--{}={}/here", key, folder)});
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      EXPECT_EQ(results[rank].status, 1) << results[rank].output;
      EXPECT_THAT(results[rank].output, HasSubstr("cannot create the ")) << key;
      EXPECT_THAT(results[rank].output, HasSubstr(folder));
      EXPECT_THAT(results[rank].output, ::testing::Not(HasSubstr("step 1/")));
      if (rank > 0) {
        EXPECT_THAT(results[rank].output, HasSubstr("error: rank 0: "));
      }
    }
  }
}

// In any order of arrival the error is that of the failing rank.
TEST_F(ShardedTraining, TheRootCauseIsNotAnEcho) {
  testing::Child launcher({testing::program_path(), "run", "--standalone", "--nproc-per-node", "4", "train",
                           (folder_ / "run.json").string(), "--device=cpu",
                           "--run.folder=" + (folder_ / "run").string(), "--checkpoint.folder=/proc/none/here"},
                          {"OMP_NUM_THREADS=1"});
  const ChildResult result = launcher.wait();
  EXPECT_EQ(result.status, 1);
  const std::size_t cause = result.output.find("Root cause");
  ASSERT_NE(cause, std::string::npos) << result.output;
  EXPECT_THAT(result.output.substr(cause), HasSubstr("rank      : 0 (local_rank: 0, node: 0)"));
  EXPECT_THAT(result.output.substr(cause), HasSubstr("message   : cannot create the run folder /proc/none/here"));
}

// A signal that reaches one process only: all save the same step, once.
TEST_F(ShardedTraining, SignalToOneProcessStopsAll) {
  testing::Ranks ranks(2);
  for (int rank = 0; rank < 2; ++rank)
    ranks.start(rank,
                {testing::program_path(), "train", (folder_ / "run.json").string(), "--device=cpu",
                 "--training.steps=1000000", "--run.folder=" + (folder_ / "run").string(), "--checkpoint.interval=0"});
  while (!fs::exists(folder_ / "run/metrics/metrics.jsonl") ||
         read_file(folder_ / "run/metrics/metrics.jsonl").find("\"step\":3,") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ranks[1].kill(SIGTERM);
  for (const ChildResult& result : ranks.wait()) EXPECT_EQ(result.status, 128 + SIGTERM) << result.output;
  int checkpoints = 0;
  for (const auto& entry : fs::directory_iterator(folder_ / "run/checkpoints"))
    checkpoints += entry.path().filename().string().starts_with("step-") ? 1 : 0;
  EXPECT_EQ(checkpoints, 1);
}

// Kills random processes of a run that saves every step, until it gets through. Whatever the moment, the others end, no
// checkpoint is damaged, and the weights in the end are those of an undisturbed run.
class KilledTraining : public ShardedTraining {
 protected:
  void survive(int kills) {
    const std::vector<std::string> saving = {"--checkpoint.interval=1", "--checkpoint.keep_latest=2",
                                             "--export.format=hf", fmt::format("--training.steps={}", 8 + 12 * kills)};
    const auto with_export = [&](const std::string& name) {
      std::vector<std::string> all = saving;
      all.push_back("--export.folder=" + (folder_ / (name + "-hf")).string());
      return all;
    };
    train(2, "calm", with_export("calm"));
    std::mt19937 random(5);
    for (int i = 0; i < kills; ++i) {
      testing::Ranks ranks(2);
      std::vector<std::string> command = {testing::program_path(), "train", (folder_ / "run.json").string(),
                                          "--device=cpu", "--run.folder=" + (folder_ / "killed").string()};
      for (std::string& argument : with_export("killed")) command.push_back(std::move(argument));
      for (int rank = 0; rank < 2; ++rank) ranks.start(rank, command);
      // Processes that have not met yet wait for each other as long as a launcher lets them.
      const std::size_t before = logged_steps();
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (logged_steps() == before && std::chrono::steady_clock::now() < limit)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 200));
      const int victim = static_cast<int>(random() % 2);
      ranks[victim].kill(SIGKILL);
      const auto start = std::chrono::steady_clock::now();
      const std::vector<ChildResult> results = ranks.wait();
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << results[1 - victim].output;
      for (const auto& entry : fs::directory_iterator(made(folder_ / "killed" / "checkpoints"))) {
        if (!entry.path().filename().string().starts_with("step-") ||
            entry.path().string().find(".tmp-") != std::string::npos)
          continue;
        testing::Child verifier({testing::program_path(), "inspect", entry.path().string(), "--verify"}, {});
        const ChildResult verified = verifier.wait();
        EXPECT_EQ(verified.status, 0) << verified.output;
      }
    }
    train(2, "killed", with_export("killed"));
    expect_same_export(folder_ / "killed-hf", folder_ / "calm-hf");
  }

 private:
  [[nodiscard]] std::size_t logged_steps() const {
    const fs::path log = folder_ / "killed" / "metrics" / "metrics.jsonl";
    const std::string text = fs::exists(log) ? read_file(log) : std::string();
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  static fs::path made(const fs::path& folder) {
    fs::create_directories(folder);
    return folder;
  }
};

TEST_F(KilledTraining, ResumesToSameWeights) {
  survive(3);
}

class KilledTrainingSlow : public KilledTraining {};
TEST_F(KilledTrainingSlow, ResumesToSameWeights) {
  survive(40);
}

}  // namespace
}  // namespace quench
