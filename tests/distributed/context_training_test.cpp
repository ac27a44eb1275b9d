// Sequences in parts: the same losses and weights as in one process, on any mesh and from any checkpoint.

#include <gmock/gmock.h>

#include "tests/distributed/mesh_training.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::ChildResult;
using ::testing::HasSubstr;
using testing::kSameLoss;
using testing::read_file;

// Rows of 16 tokens: some documents cross chunks, some rows.
class ContextTraining : public testing::MeshTraining {};

TEST_F(ContextTraining, AnyMeshTrainsTheSame) {
  for (const Options& options : {Options{}, Options{documents()}}) {
    const std::string name = options.empty() ? "text" : "documents";
    expect_same_training(name, 2, {"--parallel.context=2"}, options);
    expect_same_training(name, 4, {"--parallel.context=4", "--data.seq_len=16"}, options);
    expect_same_training(name, 4, {"--parallel.context=2"}, options);
    expect_same_training(name, 4, {"--parallel.context=2", "--parallel.replicate=2"}, options);
    expect_same_training(name, 4, {"--parallel.context=2", "--training.micro_batch_size=3"}, options);
  }
}

TEST_F(ContextTraining, OtherPackingsTrainTheSame) {
  const Options mesh = {"--parallel.context=2"};
  expect_same_training("bins", 2, mesh, {documents(), "--data.multipack=true"});
  expect_same_training("rows", 2, mesh, {documents(), "--data.packing=false"});
  // Chunks of 4 tokens in three parts.
  expect_same_training("three", 3, {"--parallel.context=3"}, {documents(), "--data.seq_len=24"});
}

TEST_F(ContextTraining, EveryWayToSaveMemoryTrainsTheSame) {
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
    train(4, name, with(ways[i], {documents(), "--parallel.context=2"}));
    expect_same_run(name, "one");
  }
}

TEST_F(ContextTraining, EveryKindOfAttentionTrainsTheSame) {
  const std::pair<std::string, std::string> models[] = {
      {"gemma2", R"("model_type": "gemma2", "vocab_size": 509, "hidden_size": 16, "intermediate_size": 20,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 6, "sliding_window": 5,
      "attn_logit_softcapping": 2, "final_logit_softcapping": 3)"},
      {"gpt-oss", R"("model_type": "gpt_oss", "vocab_size": 509, "hidden_size": 16, "intermediate_size": 20,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 6, "sliding_window": 5,
      "num_local_experts": 4, "num_experts_per_tok": 2)"},
      {"llama4", R"("model_type": "llama4_text", "vocab_size": 509, "hidden_size": 16, "intermediate_size": 20,
      "intermediate_size_mlp": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 4, "attention_chunk_size": 6, "num_local_experts": 4, "num_experts_per_tok": 1,
      "no_rope_layers": [1, 0])"},
      {"deepseek", R"("model_type": "deepseek_v3", "vocab_size": 509, "hidden_size": 24, "intermediate_size": 37,
      "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 10,
      "kv_lora_rank": 12, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 8,
      "num_experts_per_tok": 3, "moe_intermediate_size": 7, "n_group": 4, "topk_group": 2, "n_shared_experts": 2,
      "first_k_dense_replace": 1)"},
      // Documents of other lengths have other rotations.
      {"dynamic", R"("model_type": "llama", "vocab_size": 509, "hidden_size": 16, "intermediate_size": 20,
      "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
      "rope_scaling": {"type": "dynamic", "factor": 4, "original_max_position_embeddings": 8})"}};
  for (const auto& [name, model] : models) {
    SCOPED_TRACE(name);
    write_config(model);
    for (const Options& options : {Options{}, Options{documents()}})
      expect_same_training(name + (options.empty() ? "" : "-documents"), 2, {"--parallel.context=2"}, options);
  }
}

TEST_F(ContextTraining, ExpertsTrainTheSame) {
  write_config(R"("model_type": "qwen3_moe", "vocab_size": 509, "hidden_size": 32, "intermediate_size": 37,
      "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2, "num_experts": 8,
      "num_experts_per_tok": 2, "moe_intermediate_size": 11, "norm_topk_prob": true, "mlp_only_layers": [0],
      "output_router_logits": true, "router_aux_loss_coef": 0.02)");
  const Options text = {documents(), "--data.packing=false"};
  expect_same_training("experts", 2, {"--parallel.context=2"}, text);
  expect_same_training("experts", 2, {"--parallel.context=2", "--parallel.expert=2"}, text);
  expect_same_training("experts", 4, {"--parallel.context=2", "--parallel.expert=2"}, text);
  expect_same_training("experts", 4, {"--parallel.context=2", "--parallel.expert=4"}, text);
}

TEST_F(ContextTraining, AdaptersTrainTheSame) {
  expect_same_training("lora", 2, {"--parallel.context=2"}, {documents(), "--lora.rank=2"});
  expect_same_training("float8", 2, {"--parallel.context=2"}, {documents(), "--lora.rank=2", "--lora.base=float8"});
}

// A tensorwise scale is that of a rank's tokens.
TEST_F(ContextTraining, RecipesTrainNearlyTheSame) {
  constexpr double kNearLoss = 2e-3;
  const std::vector<Options> ways = {{"--recipe.name=float8_rowwise", "--recipe.pad=true"},
                                     {"--recipe.name=float8_tensorwise", "--recipe.pad=true"},
                                     {"--recipe.name=qat_int8"},
                                     {"--training.dtype=bf16"}};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const std::string one = fmt::format("one{}", i), two = fmt::format("two{}", i);
    SCOPED_TRACE(ways[i].front());
    const Options options = with(ways[i], {documents(), "--training.steps=3"});
    train(1, one, options);
    train(2, two, with(options, {"--parallel.context=2"}));
    const auto got = records(two), wanted = records(one);
    ASSERT_EQ(got.size(), wanted.size());
    for (const auto& [step, record] : wanted) {
      const double loss = record.at("loss").as_double();
      EXPECT_NEAR(got.at(step).at("loss").as_double(), loss, kNearLoss * loss) << "step " << step;
    }
  }
}

TEST_F(ContextTraining, MultiTokenPredictionTrainsTheSame) {
  write_config(R"("model_type": "deepseek_v3", "vocab_size": 509, "hidden_size": 24, "intermediate_size": 37,
      "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 10,
      "kv_lora_rank": 12, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 8,
      "num_experts_per_tok": 3, "moe_intermediate_size": 7, "n_group": 4, "topk_group": 2, "n_shared_experts": 2,
      "first_k_dense_replace": 1, "num_nextn_predict_layers": 2)");
  expect_same_training("mtp", 2, {"--parallel.context=2"}, {documents(), "--training.mtp_loss_weight=0.5"});
}

TEST_F(ContextTraining, DistillationTrainsTheSame) {
  const Options distill = {documents(), "--distill.teacher=initial", "--distill.ratio=0.5"};
  expect_same_training("distilled", 2, {"--parallel.context=2"}, distill);
  expect_same_training("hidden", 2, {"--parallel.context=2"}, with(distill, {"--distill.hidden.weight=0.5"}));
}

TEST_F(ContextTraining, PreferencesTrainTheSame) {
  std::string records;
  for (int i = 0; i < 60; ++i) {
    const std::string sum = std::to_string(i % 7 + i % 11);
    records +=
        fmt::format("{{\"prompt\": \"{}+{}=\", \"chosen\": \"{}\", \"rejected\": \"{}9\"}}\n", i % 7, i % 11, sum, sum);
  }
  testing::write_file(folder_ / "pairs.jsonl", records);
  for (const char* loss : {"dpo", "ipo", "simpo", "orpo", "kto"}) {
    SCOPED_TRACE(loss);
    const std::string one = fmt::format("{}-one", loss);
    const Options options = {fmt::format("--preference.loss={}", loss),
                             "--data.train=[\"" + (folder_ / "pairs.jsonl").string() + "\"]", "--data.seq_len=40",
                             "--training.global_batch_size=6"};
    train(1, one, options);
    // The divergence of kto is that of the micro-batches of all ranks, of which one process has one at a time.
    for (const int ranks : std::string(loss) == "kto" ? std::vector<int>{2} : std::vector<int>{2, 4}) {
      const std::string own = fmt::format("{}-{}", loss, ranks);
      train(ranks, own, with(options, {"--parallel.context=2"}));
      expect_near_run(own, one, 1e-5);
    }
  }
}

TEST_F(ContextTraining, CheckpointsGoOnOnAnyMesh) {
  struct Mesh {
    int ranks;
    Options options;
  };
  const std::vector<Mesh> meshes = {
      {1, {}}, {2, {"--parallel.context=2"}}, {3, {}}, {4, {"--parallel.context=2", "--parallel.replicate=2"}}};
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

TEST_F(ContextTraining, EvaluationCountsEveryTokenOnce) {
  const Options more = {"--data.validation=" + (folder_ / "documents.jsonl").string(), "--evaluation.interval=4",
                        "--evaluation.prompts=[\"line 3\"]", "--evaluation.sample_tokens=6"};
  train(1, "one", more);
  train(4, "four", with(more, {"--parallel.context=2"}));
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

// The estimate in the start report runs the same code on the meta device.
TEST_F(ContextTraining, StartReportShowsTheMesh) {
  for (const ChildResult& result : start(4, "run", {"--parallel.context=2", "--training.steps=1"})) {
    ASSERT_EQ(result.status, 0) << result.output;
    if (!fs::exists(folder_ / "run")) continue;
  }
  const std::string log = read_file(folder_ / "run" / "log.txt");
  EXPECT_THAT(log, HasSubstr("processes: 4 = replicate 1 x shard 2 x context 2"));
  EXPECT_THAT(log, HasSubstr("context      2 ranks (0,1; 2,3) within a node: all-gathers keys and values"));
}

TEST_F(ContextTraining, MeshesThatDoNotFitAreNamed) {
  const auto refused = [&](int ranks, const Options& options, const std::string& reason) {
    for (const ChildResult& result : start(ranks, "refused", options)) {
      EXPECT_EQ(result.status, 2) << result.output;
      EXPECT_THAT(result.output, HasSubstr(reason));
    }
    EXPECT_FALSE(fs::exists(folder_ / "refused"));
  };
  refused(1, {"--parallel.context=2"}, "2 parts of each sequence are not possible with 1 process");
  refused(3, {"--parallel.context=2"}, "2 parts of each sequence are not possible with 3 processes");
  refused(2, {"--parallel.context=2", "--parallel.shard=2"},
          "shard 2 x replicate 1 x context 2 is 4, but the run has 2 processes");
  refused(2, {"--parallel.context=2", "--data.seq_len=18"},
          "18 is not divisible by 2 x parallel.context 2 = 4; nearest: 16 or 20");
  refused(2, {"--parallel.context=2", "--training.global_batch_size=5", "--training.micro_batch_size=2"},
          "5 is not divisible by micro_batch_size 2");
  refused(2, {"--parallel.context=2", "--grpo.rewards=exact_match"},
          "the objective grpo needs whole sequences; set it to 1");
}

}  // namespace
}  // namespace quench
