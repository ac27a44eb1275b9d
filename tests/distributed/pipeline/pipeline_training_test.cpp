// Stages of layers: the same losses and weights as in one process, on any mesh and from any checkpoint.

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
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

class PipelineTraining : public testing::MeshTraining {
 protected:
  void SetUp() override {
    MeshTraining::SetUp();
    write_layers(5);
  }
  void write_layers(int layers, const std::string& more = "") {
    write_config(fmt::format(R"("model_type": "qwen3", "vocab_size": 512, "hidden_size": 24, "intermediate_size": 36,
        "num_hidden_layers": {}, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2{})",
                             layers, more));
  }
  inline static const Options kTwo = {"--parallel.pipeline=2"};
  inline static const Options kInterleaved = {"--parallel.pipeline=2", "--parallel.pipeline_schedule=interleaved"};
};

TEST(PipelineGroup, StagesOfModelsHaveTheGradientsOfWholeOnes) {
  for (const int count : {2, 3})
    for (const std::string model :
         {R"("model_type": "qwen3", "hidden_size": 24, "intermediate_size": 36, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 6)",
          R"("model_type": "gemma2", "hidden_size": 24, "intermediate_size": 36, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 6, "sliding_window": 5, "tie_word_embeddings": true)"}) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", count, model));
      testing::Ranks ranks(count);
      ranks.start_all("pipeline", {model, "2e-6"});
      ranks.expect_success();
    }
}

TEST_F(PipelineTraining, AnyMeshTrainsTheSame) {
  for (const Options& options : {Options{}, Options{documents(), "--data.seq_len=17"}}) {
    const std::string name = options.empty() ? "text" : "documents";
    expect_same_training(name, 2, kTwo, options);
    expect_same_training(name, 3, {"--parallel.pipeline=3"}, options);
    expect_same_training(name, 4, {"--parallel.pipeline=4"}, options);
    expect_same_training(name, 4, kTwo, options);
    expect_same_training(name, 4, with(kTwo, {"--parallel.replicate=2"}), options);
    expect_same_training(name, 2, with(kTwo, {"--training.micro_batch_size=4"}), options);
    expect_same_training(name, 2, with(kTwo, {"--training.micro_batch_size=12"}), options);
    expect_same_training(name, 2, with(kTwo, {"--parallel.pipeline_layers=[1,4]"}), options);
  }
}

TEST_F(PipelineTraining, InterleavedChunksTrainTheSame) {
  expect_same_training("text", 2, kInterleaved);
  expect_same_training("text", 4, kInterleaved);
  expect_same_training("text", 2, with(kInterleaved, {"--parallel.pipeline_layers=[1,2,1,1]"}));
  write_layers(6);
  expect_same_training("six", 2, with(kInterleaved, {"--parallel.pipeline_chunks=3"}));
}

TEST_F(PipelineTraining, StagesOfSlicesAndOfPartsOfSequencesTrainTheSame) {
  expect_same_training("text", 4, with(kTwo, {"--parallel.tensor=2"}), {documents(), "--data.seq_len=17"});
  expect_same_training("parts", 4, with(kTwo, {"--parallel.context=2"}), {documents()});
}

TEST_F(PipelineTraining, TiedTablesTrainTheSame) {
  write_layers(5, R"(, "tie_word_embeddings": true)");
  expect_same_training("text", 2, kTwo);
  expect_same_training("text", 3, {"--parallel.pipeline=3"});
  expect_same_training("text", 4, kTwo);
  expect_same_training("text", 4, kInterleaved);
  expect_same_training("clipped", 4, kTwo, {"--training.max_norm=0.01"});
}

// Types of a mix follow from all layers and the head: stages take those of the whole model.
// With a seed for which another order of sums rounds no weight to another code.
TEST_F(PipelineTraining, MixesOfGgufTypesTrainTheSame) {
  for (const bool tied : {true, false}) {
    write_config(fmt::format(R"("model_type": "llama", "vocab_size": 512, "hidden_size": 32, "intermediate_size": 64,
      "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": {})",
                             tied));
    expect_same_training(tied ? "tied" : "untied", 2, kTwo, {"--recipe.name=qat_gguf", "--training.seed=7"});
  }
}

// The terms of the loss for even loads take part; a bias on the choice moves with the loads of all layers.
TEST_F(PipelineTraining, ExpertsTrainTheSame) {
  const std::pair<std::string, std::string> models[] = {
      {"qwen3", R"("model_type": "qwen3_moe", "vocab_size": 512, "hidden_size": 32, "intermediate_size": 36,
      "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2, "num_experts": 8,
      "num_experts_per_tok": 2, "moe_intermediate_size": 11, "norm_topk_prob": true, "mlp_only_layers": [0],
      "output_router_logits": true, "router_aux_loss_coef": 0.02)"},
      {"deepseek", R"("model_type": "deepseek_v3", "vocab_size": 512, "hidden_size": 24, "intermediate_size": 36,
      "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 10,
      "kv_lora_rank": 12, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 8,
      "num_experts_per_tok": 3, "moe_intermediate_size": 7, "n_group": 4, "topk_group": 2, "n_shared_experts": 2,
      "first_k_dense_replace": 1)"}};
  for (const auto& [name, model] : models) {
    SCOPED_TRACE(name);
    write_config(model);
    expect_same_training(name, 2, kTwo);
    expect_same_training(name, 4, with(kInterleaved, {"--parallel.expert=2"}));
    const auto loads = [&](const std::string& run) { return read_file(folder_ / run / "metrics" / "experts.jsonl"); };
    EXPECT_FALSE(loads(name).empty());
    EXPECT_EQ(std::ranges::count(loads(name + "-2-pipeline=2"), '\n'), std::ranges::count(loads(name), '\n'));
  }
}

TEST_F(PipelineTraining, EveryWayToSaveMemoryTrainsTheSame) {
  train(1, "one", {documents()});
  const std::vector<Options> ways = {
      {"--parallel.reshard_after_forward=false"},
      {"--parallel.reduce_every_micro_batch=false"},
      {"--training.activation_checkpoint=selective"},
      {"--training.activation_checkpoint=selective", "--training.recompute_mlp_layers=2"},
      {"--training.activation_checkpoint=full"},
  };
  for (std::size_t i = 0; i < ways.size(); ++i) {
    for (const Options& mesh : {kTwo, kInterleaved}) {
      const std::string name = fmt::format("way{}-{}", i, mesh.size());
      train(4, name, with(ways[i], with({documents()}, mesh)));
      expect_same_run(name, "one");
    }
  }
}

TEST_F(PipelineTraining, OptimizersTrainTheSame) {
  const Options sgd = {"--optimizer.name=sgd", "--training.max_norm=0.5", "--training.ema_decay=0.9"};
  expect_same_training("sgd", 2, kTwo, sgd);
  expect_same_training("sgd", 4, kTwo, sgd);
  // Orthogonalised sums differ by more than their addends.
  constexpr double kNearLoss = 1e-5;
  const Options muon = {"--optimizer.name=muon"};
  train(1, "muon", muon);
  train(4, "muon-4", with(muon, kTwo));
  expect_near_run("muon-4", "muon", kNearLoss);
}

TEST_F(PipelineTraining, AdaptersTrainTheSame) {
  const Options options = {documents(), "--lora.rank=2", "--lora.dropout=0.1"};
  expect_same_training("lora", 2, kTwo, options);
  expect_same_training("lora", 4, kInterleaved, options);
  // Over the base of all stages.
  train(1, "lora-2-pipeline=2", with(options, {"--training.steps=10"}));
  train(1, "lora", with(options, {"--training.steps=10"}));
  expect_same_run("lora-2-pipeline=2", "lora");
}

TEST_F(PipelineTraining, PatternsMayMatchLayersOfOneStage) {
  expect_same_training("frozen", 2, kTwo, {R"(--training.freeze=["model.embed_tokens*", "model.layers.1.*"])"});
  expect_same_training("groups", 2, kTwo, {R"(--optimizer.groups=[{"match": ["lm_head*"], "lr_scale": 0.1}])"});
  for (const ChildResult& result : start(2, "none", with(kTwo, {R"(--training.train=["model.layers.0.*"])"}))) {
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.output, HasSubstr("training.train: no parameter is left to train in the pipeline stage of"));
  }
}

TEST_F(PipelineTraining, RecipesTrainNearlyTheSame) {
  constexpr double kNearLoss = 2e-3;
  const std::vector<Options> ways = {{"--recipe.name=float8_rowwise", "--recipe.pad=true"},
                                     {"--recipe.name=float8_tensorwise", "--recipe.pad=true"},
                                     {"--training.dtype=bf16"}};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const std::string one = fmt::format("one{}", i);
    SCOPED_TRACE(ways[i].front());
    const Options options = with(ways[i], {documents(), "--training.steps=3"});
    train(1, one, options);
    for (const int ranks : {2, 4}) {
      const std::string several = fmt::format("{}-{}", one, ranks);
      train(ranks, several, with(options, kTwo));
      expect_near_run(several, one, kNearLoss);
    }
  }
}

TEST_F(PipelineTraining, CheckpointsGoOnOnAnyMesh) {
  struct Mesh {
    int ranks;
    Options options;
  };
  const std::vector<Mesh> meshes = {{1, {}}, {2, kTwo}, {2, {}}, {2, kInterleaved}, {4, kTwo}};
  for (const bool tied : {false, true}) {
    write_layers(5, tied ? R"(, "tie_word_embeddings": true)" : "");
    const std::string whole = tied ? "whole-tied" : "whole";
    train(1, whole, {documents()});
    for (std::size_t saved = 0; saved < meshes.size(); ++saved) {
      const std::string from = fmt::format("{}-saved{}", whole, saved);
      train(meshes[saved].ranks, from,
            with(meshes[saved].options, {documents(), "--training.steps=4", "--training.global_batch_size=12"}));
      for (std::size_t loaded = 0; loaded < meshes.size(); ++loaded) {
        const std::string onwards = fmt::format("{}to{}", from, loaded);
        fs::copy(folder_ / from, folder_ / onwards, fs::copy_options::recursive);
        train(meshes[loaded].ranks, onwards, with(meshes[loaded].options, {documents()}));
        expect_same_run(onwards, whole);
      }
    }
  }
}

TEST_F(PipelineTraining, FoldersAndCheckpointsHoldTheWeightsOfOneProcess) {
  const auto export_of = [&](const std::string& run, const std::string& to) {
    testing::Child child({testing::program_path(), "export", "--checkpoint", (folder_ / run).string(), "--output",
                          (folder_ / to).string()},
                         {"OMP_NUM_THREADS=1"});
    const ChildResult result = child.wait();
    ASSERT_EQ(result.status, 0) << result.output;
  };
  // Before an update all bits are the same; this one rounds to nothing.
  const Options none = {"--training.steps=1", "--optimizer.lr=1e-30", "--optimizer.weight_decay=0"};
  for (const bool tied : {false, true}) {
    write_layers(5, tied ? R"(, "tie_word_embeddings": true)" : "");
    const std::string one = fmt::format("one{}", tied), four = fmt::format("four{}", tied);
    train(1, one, none);
    train(4, four, with(none, kInterleaved));
    export_of(one, one + "-hf");
    const std::string end = fmt::format("end{}", tied);
    train(4, end,
          with(with(none, kTwo), {"--export.format=hf", "--export.folder=" + (folder_ / (end + "-hf")).string()}));
    expect_same_export(folder_ / (end + "-hf"), folder_ / (one + "-hf"));
    export_of(four, four + "-hf");
    expect_same_export(folder_ / (four + "-hf"), folder_ / (one + "-hf"));
  }
  // A run from the folder, in stages.
  const Options from = {"--model.path=" + (folder_ / "onefalse-hf").string(), "--training.steps=2"};
  testing::write_file(folder_ / "run.json", [&] {
    Json config = Json::parse(read_file(folder_ / "run.json"));
    config.set("model", Json::object());
    return config.dump();
  }());
  expect_same_training("loaded", 2, kTwo, from);
}

TEST_F(PipelineTraining, EvaluationCountsEveryTokenOnce) {
  const Options more = {"--data.validation=" + (folder_ / "documents.jsonl").string(), "--evaluation.interval=4"};
  train(1, "one", more);
  const auto last_line = [&](const std::string& run) {
    const std::string text = read_file(folder_ / run / "metrics" / "evaluations.jsonl");
    return Json::parse(text.substr(text.rfind('\n', text.size() - 2) + 1));
  };
  const Json one = last_line("one");
  for (const Options& mesh : {kTwo, kInterleaved}) {
    const std::string name = fmt::format("four{}", mesh.size());
    train(4, name, with(more, mesh));
    const Json four = last_line(name);
    EXPECT_EQ(four.at("tokens").as_int(), one.at("tokens").as_int());
    const double loss = one.at("values").at("loss").as_double();
    EXPECT_NEAR(four.at("values").at("loss").as_double(), loss, kSameLoss * loss);
  }
}

TEST_F(PipelineTraining, AKilledStageEndsAllAndTheRunGoesOn) {
  const Options saving = {documents(), "--checkpoint.interval=1", "--checkpoint.keep_latest=2", "--training.steps=10"};
  train(1, "calm", saving);
  const Options staged = with(saving, {"--parallel.pipeline=3"});
  testing::Ranks ranks(3);
  std::vector<std::string> command = {testing::program_path(), "train", (folder_ / "run.json").string(), "--device=cpu",
                                      "--run.folder=" + (folder_ / "killed").string()};
  command.insert(command.end(), staged.begin(), staged.end());
  for (int rank = 0; rank < 3; ++rank) ranks.start(rank, command);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!fs::exists(folder_ / "killed" / "checkpoints" / "step-3") && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ranks[1].kill(SIGKILL);
  const std::vector<ChildResult> results = ranks.wait();
  for (const int rank : {0, 2}) {
    EXPECT_NE(results[static_cast<std::size_t>(rank)].status, 0);
    // The next operation that needs the killed one, or one that has seen the alarm.
    EXPECT_THAT(results[static_cast<std::size_t>(rank)].output,
                ::testing::AnyOf(HasSubstr("rank 1"), HasSubstr("waiting for rank")));
  }
  train(3, "killed", staged);
  expect_same_run("killed", "calm");
}

TEST_F(PipelineTraining, StartReportShowsTheStages) {
  for (const ChildResult& result : start(4, "run", with(kTwo, {"--training.steps=2"})))
    ASSERT_EQ(result.status, 0) << result.output;
  const std::string log = read_file(folder_ / "run" / "log.txt");
  EXPECT_THAT(log, HasSubstr("processes: 4 = replicate 1 x shard 2 x context 1 x pipeline 2"));
  EXPECT_THAT(log, HasSubstr("pipeline     2 ranks (0,2; 1,3) within a node: stages send hidden states onwards"));
  EXPECT_THAT(log, HasSubstr("stages: layers 0-3; 4; stage"));
  for (const auto& [step, record] : records("run")) {
    const double bubble = record.at("bubble").as_double();
    EXPECT_GT(bubble, 0) << step;
    EXPECT_LT(bubble, 1) << step;
  }
}

TEST_F(PipelineTraining, StagesThatDoNotFitAreNamed) {
  const auto refused = [&](int ranks, const Options& options, const std::string& reason) {
    for (const ChildResult& result : start(ranks, "refused", options)) {
      EXPECT_EQ(result.status, 2) << result.output;
      EXPECT_THAT(result.output, HasSubstr(reason));
    }
    EXPECT_FALSE(fs::exists(folder_ / "refused"));
  };
  refused(1, kTwo, "2 stages are not possible with 1 process");
  refused(3, kTwo, "2 stages are not possible with 3 processes; start a multiple of 2");
  refused(2, with(kTwo, {"--parallel.tensor=2"}), "2 slices of the weights x pipeline 2 are not possible with 2");
  refused(2, with(kTwo, {"--parallel.shard=2"}), "shard 2 x replicate 1 x pipeline 2 is 4, but the run has 2");
  refused(2, with(kInterleaved, {"--training.micro_batch_size=4"}),
          "interleaved needs a multiple of 2 micro-batches in a step (parallel.pipeline), but there are 3");
}

}  // namespace
}  // namespace quench
