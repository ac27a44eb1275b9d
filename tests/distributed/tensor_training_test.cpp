// Slices of the weights: the same losses and weights as in one process, on any mesh and from any checkpoint.

#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/distributed/mesh_training.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::ChildResult;
using ::testing::HasSubstr;
using testing::kSameLoss;
using testing::read_file;

class TensorTraining : public testing::MeshTraining {
 protected:
  void SetUp() override {
    MeshTraining::SetUp();
    // Four ranks divide heads, width and vocabulary; rows of an odd number of tokens are not divided by any.
    write_config(R"("model_type": "qwen3", "vocab_size": 512, "hidden_size": 24, "intermediate_size": 36,
        "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 2)");
  }
};

TEST(TensorGroup, SlicesOfModelsHaveTheGradientsOfWholeOnes) {
  for (const int count : {2, 3, 4}) {
    const std::string sizes = fmt::format(
        R"("hidden_size": 24, "intermediate_size": {}, "num_attention_heads": {}, "num_key_value_heads": {})",
        12 * count, 2 * count, count);
    for (const std::string more : {R"("model_type": "qwen3", "head_dim": 6, )",
                                   R"("model_type": "qwen2", "head_dim": 6, "tie_word_embeddings": true, )",
                                   R"("model_type": "gemma2", "head_dim": 6, "sliding_window": 5,
                                      "attn_logit_softcapping": 2, "final_logit_softcapping": 3, )"}) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", count, more));
      testing::Ranks ranks(count);
      ranks.start_all("tensor", {more + sizes, "2e-6"});
      ranks.expect_success();
    }
  }
}

TEST_F(TensorTraining, AnyMeshTrainsTheSame) {
  for (const Options& options : {Options{}, Options{documents(), "--data.seq_len=17"}}) {
    const std::string name = options.empty() ? "text" : "documents";
    expect_same_training(name, 2, {"--parallel.tensor=2"}, options);
    expect_same_training(name, 4, {"--parallel.tensor=4"}, options);
    expect_same_training(name, 4, {"--parallel.tensor=2"}, options);
    expect_same_training(name, 4, {"--parallel.tensor=2", "--parallel.replicate=2"}, options);
    expect_same_training(name, 4, {"--parallel.tensor=2", "--training.micro_batch_size=3"}, options);
  }
}

TEST_F(TensorTraining, PartsOfSequencesAndSlicesOfWeightsTrainTheSame) {
  expect_same_training("text", 4, {"--parallel.tensor=2", "--parallel.context=2"}, {documents()});
  expect_same_training("text", 8, {"--parallel.tensor=2", "--parallel.context=2"}, {documents()});
}

TEST_F(TensorTraining, EveryWayToSaveMemoryTrainsTheSame) {
  train(1, "one", {documents()});
  const std::vector<Options> ways = {
      {"--parallel.reshard_after_forward=false"},
      {"--parallel.reduce_every_micro_batch=false"},
      {"--training.activation_checkpoint=selective"},
      {"--training.activation_checkpoint=selective", "--training.recompute_mlp_layers=2"},
      {"--training.activation_checkpoint=full"},
  };
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const std::string name = fmt::format("way{}", i);
    train(4, name, with(ways[i], {documents(), "--parallel.tensor=2"}));
    expect_same_run(name, "one");
  }
}

TEST_F(TensorTraining, FamiliesTrainTheSame) {
  const std::pair<std::string, std::string> models[] = {
      {"llama-tied", R"("model_type": "llama", "vocab_size": 512, "hidden_size": 16, "intermediate_size": 20,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": true)"},
      {"qwen2", R"("model_type": "qwen2", "vocab_size": 512, "hidden_size": 16, "intermediate_size": 20,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2)"},
      {"mistral", R"("model_type": "mistral", "vocab_size": 512, "hidden_size": 16, "intermediate_size": 20,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 5)"},
      {"gemma2", R"("model_type": "gemma2", "vocab_size": 512, "hidden_size": 16, "intermediate_size": 20,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "sliding_window": 5,
      "attn_logit_softcapping": 2, "final_logit_softcapping": 3)"},
      {"gemma3", R"("model_type": "gemma3_text", "vocab_size": 512, "hidden_size": 16, "intermediate_size": 20,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "sliding_window": 5)"},
      {"granite", R"("model_type": "granite", "vocab_size": 512, "hidden_size": 16, "intermediate_size": 20,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "residual_multiplier": 0.5,
      "embedding_multiplier": 3, "logits_scaling": 2, "attention_multiplier": 0.3)"}};
  for (const auto& [name, model] : models) {
    SCOPED_TRACE(name);
    write_config(model);
    expect_same_training(name, 2, {"--parallel.tensor=2"}, {documents()});
  }
}

TEST_F(TensorTraining, AdaptersTrainTheSame) {
  expect_same_training("lora", 2, {"--parallel.tensor=2"}, {documents(), "--lora.rank=2"});
  expect_same_training("lora", 4, {"--parallel.tensor=2"}, {documents(), "--lora.rank=2"});
  train(4, "lora", {documents(), "--lora.rank=2", "--parallel.tensor=4", "--training.steps=10"});  // continues
}

// Activations between slices are rounded, and a scale is that of a slice.
TEST_F(TensorTraining, RecipesTrainNearlyTheSame) {
  constexpr double kNearLoss = 2e-3;
  const std::vector<Options> ways = {
      {"--recipe.name=float8_rowwise", "--recipe.pad=true"},
      {"--recipe.name=float8_tensorwise", "--recipe.pad=true"},
      {"--recipe.name=float8_tensorwise", "--recipe.pad=true", "--recipe.scaling=delayed"},
      {"--training.dtype=bf16"}};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const std::string one = fmt::format("one{}", i);
    SCOPED_TRACE(ways[i].front());
    const Options options = with(ways[i], {documents(), "--training.steps=3"});
    train(1, one, options);
    for (const int ranks : {2, 4}) {
      const std::string several = fmt::format("{}-{}", one, ranks);
      train(ranks, several, with(options, {"--parallel.tensor=2"}));
      const auto got = records(several), wanted = records(one);
      ASSERT_EQ(got.size(), wanted.size());
      for (const auto& [step, record] : wanted) {
        const double loss = record.at("loss").as_double();
        EXPECT_NEAR(got.at(step).at("loss").as_double(), loss, kNearLoss * loss) << "step " << step;
      }
    }
  }
}

TEST_F(TensorTraining, CheckpointsGoOnOnAnyMesh) {
  struct Mesh {
    int ranks;
    Options options;
  };
  const std::vector<Mesh> meshes = {
      {1, {}}, {2, {"--parallel.tensor=2"}}, {3, {}}, {4, {"--parallel.tensor=4"}}, {4, {"--parallel.tensor=2"}}};
  train(1, "whole", {documents()});
  for (std::size_t saved = 0; saved < meshes.size(); ++saved) {
    const std::string from = fmt::format("saved{}", saved);
    train(meshes[saved].ranks, from,
          with(meshes[saved].options, {documents(), "--training.steps=4", "--training.global_batch_size=12"}));
    for (std::size_t loaded = 0; loaded < meshes.size(); ++loaded) {
      const std::string onwards = fmt::format("{}to{}", from, loaded);
      fs::copy(folder_ / from, folder_ / onwards, fs::copy_options::recursive);
      train(meshes[loaded].ranks, onwards, with(meshes[loaded].options, {documents()}));
      expect_same_run(onwards, "whole");
    }
  }
}

TEST_F(TensorTraining, FoldersAndCheckpointsHoldTheWeightsOfOneProcess) {
  const auto export_of = [&](const std::string& run, const std::string& to) {
    testing::Child child({testing::program_path(), "export", "--checkpoint", (folder_ / run).string(), "--output",
                          (folder_ / to).string()},
                         {"OMP_NUM_THREADS=1"});
    const ChildResult result = child.wait();
    ASSERT_EQ(result.status, 0) << result.output;
  };
  // Before an update all bits are the same; this one rounds to nothing.
  const Options none = {"--training.steps=1", "--optimizer.lr=1e-30", "--optimizer.weight_decay=0"};
  train(1, "one", none);
  train(4, "four", with(none, {"--parallel.tensor=2"}));
  export_of("one", "one-hf");
  export_of("four", "four-hf");
  expect_same_export(folder_ / "four-hf", folder_ / "one-hf");
  const Options written = {"--export.format=hf", "--export.folder=" + (folder_ / "end-hf").string()};
  train(4, "end", with(with(none, {"--parallel.tensor=2"}), written));
  expect_same_export(folder_ / "end-hf", folder_ / "one-hf");
  // A run from the folder, on slices.
  const Options from = {"--model.path=" + (folder_ / "one-hf").string(), "--training.steps=2"};
  testing::write_file(folder_ / "run.json", [&] {
    Json config = Json::parse(read_file(folder_ / "run.json"));
    config.set("model", Json::object());
    return config.dump();
  }());
  expect_same_training("loaded", 2, {"--parallel.tensor=2"}, from);
}

TEST_F(TensorTraining, EvaluationCountsEveryTokenOnce) {
  const Options more = {"--data.validation=" + (folder_ / "documents.jsonl").string(), "--evaluation.interval=4",
                        "--evaluation.prompts=[\"line 3\"]", "--evaluation.sample_tokens=6"};
  train(1, "one", more);
  train(4, "four", with(more, {"--parallel.tensor=2"}));
  const auto last_line = [&](const std::string& run, const std::string& file) {
    const std::string text = read_file(folder_ / run / "metrics" / file);
    return Json::parse(text.substr(text.rfind('\n', text.size() - 2) + 1));
  };
  const Json one = last_line("one", "evaluations.jsonl"), four = last_line("four", "evaluations.jsonl");
  EXPECT_EQ(four.at("tokens").as_int(), one.at("tokens").as_int());
  const double loss = one.at("values").at("loss").as_double();
  EXPECT_NEAR(four.at("values").at("loss").as_double(), loss, kSameLoss * loss);
  EXPECT_EQ(last_line("four", "samples.jsonl").at("text"), last_line("one", "samples.jsonl").at("text"));
}

TEST_F(TensorTraining, KilledRunsGoOn) {
  const Options saving = {documents(), "--checkpoint.interval=1", "--checkpoint.keep_latest=2", "--training.steps=20"};
  train(1, "calm", saving);
  const Options sliced = with(saving, {"--parallel.tensor=2"});
  testing::Ranks ranks(2);
  std::vector<std::string> command = {testing::program_path(), "train", (folder_ / "run.json").string(), "--device=cpu",
                                      "--run.folder=" + (folder_ / "killed").string()};
  command.insert(command.end(), sliced.begin(), sliced.end());
  for (int rank = 0; rank < 2; ++rank) ranks.start(rank, command);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!fs::exists(folder_ / "killed" / "checkpoints" / "step-3") && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ranks[1].kill(SIGKILL);
  EXPECT_NE(ranks.wait()[0].status, 0);
  train(2, "killed", sliced);
  expect_same_run("killed", "calm");
}

// The estimate in the start report runs the same code on the meta device.
TEST_F(TensorTraining, StartReportShowsTheMesh) {
  for (const ChildResult& result : start(4, "run", {"--parallel.tensor=2", "--training.steps=1"}))
    ASSERT_EQ(result.status, 0) << result.output;
  const std::string log = read_file(folder_ / "run" / "log.txt");
  EXPECT_THAT(log, HasSubstr("processes: 4 = replicate 1 x shard 2 x context 1 x tensor 2"));
  EXPECT_THAT(log, HasSubstr("tensor       2 ranks (0,1; 2,3) within a node: all-gathers token rows"));
  EXPECT_THAT(log, HasSubstr("MiB of token rows"));
}

TEST_F(TensorTraining, MeshesThatDoNotFitAreNamed) {
  const auto refused = [&](int ranks, const Options& options, const std::string& reason) {
    for (const ChildResult& result : start(ranks, "refused", options)) {
      EXPECT_EQ(result.status, 2) << result.output;
      EXPECT_THAT(result.output, HasSubstr(reason));
    }
    EXPECT_FALSE(fs::exists(folder_ / "refused"));
  };
  refused(1, {"--parallel.tensor=2"}, "2 slices of the weights are not possible with 1 process");
  refused(3, {"--parallel.tensor=2"}, "2 slices of the weights are not possible with 3 processes");
  refused(2, {"--parallel.tensor=2", "--parallel.context=2"},
          "2 parts of each sequence x tensor 2 are not possible with 2 processes; start a multiple of 4");
  refused(2, {"--parallel.tensor=2", "--parallel.shard=2"},
          "shard 2 x replicate 1 x tensor 2 is 4, but the run has 2 processes");
  refused(3, {"--parallel.tensor=3"},
          "3 slices of Qwen3ForCausalLM are not possible: vocab_size 512 is not divisible by 3");
}

}  // namespace
}  // namespace quench
