// The verbs on run folders that several processes have written.

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/apps/program.h"
#include "tests/distributed/sharded_training.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_file;
using testing::ShardedTraining;
using testing::TempDir;

class ShardedFolder : public ShardedTraining {
 protected:
  std::string run(const std::vector<std::string>& arguments) {
    const Outcome outcome = testing::run_program(scratch_.path(), arguments);
    EXPECT_EQ(outcome.status, 0) << arguments.front() << ": " << outcome.errors;
    return outcome.output;
  }
  [[nodiscard]] std::string at(const std::string& name) const { return (folder_ / name).string(); }
  // Perplexity on the text that it was trained on.
  double perplexity(const std::string& model) {
    const std::string json = run({"eval", "--model", at(model), "--data", at("text.txt"), "--seq-len", "16", "--device",
                                  "cpu", "--dtype", "f32", "--json"});
    return find_number(Json::parse(json), "token_perplexity");
  }
  std::string text_of(const std::string& model) {
    return run({"generate", "--model", at(model), "--prompt", "line 3", "--max-new-tokens", "12", "--device", "cpu",
                "--dtype", "f32"});
  }

  TempDir scratch_;  // output of the programs

 private:
  static double find_number(const Json& json, const std::string& key) {
    if (json.is_object()) {
      if (const Json* found = json.find(key)) return found->as_double();
      for (const auto& [name, value] : json.as_object())
        if (const double number = find_number(value, key); !std::isnan(number)) return number;
    }
    if (json.is_array())
      for (const Json& value : json.as_array())
        if (const double number = find_number(value, key); !std::isnan(number)) return number;
    return std::nan("");
  }
};

TEST_F(ShardedFolder, VerbsUseItLikeAnyOther) {
  train(3, "run");
  EXPECT_THAT(run({"inspect", at("run")}), HasSubstr("step-8"));
  const std::string checkpoint = run({"inspect", at("run/checkpoints/step-8"), "--verify", "--tensors"});
  EXPECT_THAT(checkpoint, ::testing::ContainsRegex("world_size +3"));
  EXPECT_THAT(checkpoint, ::testing::ContainsRegex("model.embed_tokens.weight +f32 +.509,24."));
  run({"export", "--checkpoint", at("run"), "--output", at("model")});
  // A model folder has no shards: what reads both alike has put them together.
  const double of_run = perplexity("run");
  EXPECT_GT(of_run, 1);
  EXPECT_EQ(of_run, perplexity("model"));
  const std::string text = text_of("run");
  EXPECT_THAT(text, HasSubstr("line 3"));
  EXPECT_EQ(text, text_of("model"));
  run({"report", at("run")});
  const std::string page = read_file(folder_ / "run" / "report.html");
  EXPECT_THAT(page, ::testing::ContainsRegex("3; rank [0-2] computes longest, [0-9.]+ ms a step"));
  EXPECT_THAT(page, HasSubstr(R"("communication_share":{"x":[)"));
  EXPECT_THAT(page, HasSubstr(R"("ranks":{"extremes":false,"curves":[{"x":[)"));
}

// Runs that leave more than weights: scales of codes, adapters over a base in few bits, experts that are sharded.
TEST_F(ShardedFolder, VerbsUseRunsOfEveryKind) {
  struct Kind {
    std::string name;
    int ranks;
    std::string model;
    std::vector<std::string> options;
    double near;  // tolerance of the run and of its export, relative
  };
  const std::string dense = R"("model_type": "qwen3", "vocab_size": 509, "hidden_size": 64, "intermediate_size": 192,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16)";
  const std::string experts = R"("model_type": "qwen3_moe", "vocab_size": 509, "hidden_size": 32,
      "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 2, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 11,
      "norm_topk_prob": true, "mlp_only_layers": [0])";
  const std::string gemma = R"("model_type": "gemma3_text", "vocab_size": 509, "hidden_size": 32,
      "intermediate_size": 37, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 6, "sliding_window": 5, "sliding_window_pattern": 3)";
  const std::string gpt_oss = R"("model_type": "gpt_oss", "vocab_size": 509, "hidden_size": 32,
      "intermediate_size": 11, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 6, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5)";
  const std::string qwen2_moe = R"("model_type": "qwen2_moe", "vocab_size": 509, "hidden_size": 32,
      "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 11,
      "shared_expert_intermediate_size": 13)";
  const std::vector<Kind> kinds = {
      {"qwen2-moe", 4, qwen2_moe, {"--parallel.expert=2"}, 0},
      {"gpt-oss", 4, gpt_oss, {"--parallel.expert=2"}, 0},
      {"gemma", 3, gemma, {}, 0},
      {"qat", 3, dense, {"--recipe.name=qat_int4_weight_only", "--recipe.learned_scales=true"}, 0},
      {"adapters", 3, dense, {"--lora.rank=3", "--lora.dora=true", "--lora.base=nf4"}, 1e-4},
      {"experts", 4, experts, {"--parallel.expert=2"}, 0}};
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.name);
    write_config(kind.model);
    train(kind.ranks, kind.name, kind.options);
    const std::string summary = run({"inspect", at(kind.name)});
    EXPECT_THAT(summary, HasSubstr("finished"));
    EXPECT_THAT(summary, ::testing::ContainsRegex("step 8 .*valid"));
    const std::string checkpoint = run({"inspect", at(kind.name + "/checkpoints/step-8"), "--verify"});
    EXPECT_THAT(checkpoint, ::testing::ContainsRegex(fmt::format("world_size +{}", kind.ranks)));
    run({"report", at(kind.name)});
    EXPECT_THAT(read_file(folder_ / kind.name / "report.html"),
                ::testing::ContainsRegex(fmt::format("{}; rank [0-{}] computes longest", kind.ranks, kind.ranks - 1)));
    run({"export", "--checkpoint", at(kind.name), "--output", at(kind.name + "-model")});
    const double of_run = perplexity(kind.name);
    EXPECT_GT(of_run, 1);
    EXPECT_NEAR(perplexity(kind.name + "-model"), of_run, kind.near * of_run);
  }
}

TEST_F(ShardedFolder, AdaptersOfSeveralProcessesAreMergedAndExported) {
  const std::vector<std::string> lora = {"--lora.rank=3", "--lora.targets=[\"q_proj\",\"down_proj\"]",
                                         "--training.steps=4"};
  train(1, "one", lora);
  train(3, "run", lora);
  for (const std::string name : {"one", "run"}) {
    run({"merge-lora", "--model", at(name), "--output", at(name + "-merged")});
    run({"export", "--checkpoint", at(name), "--output", at(name + "-export")});
    expect_same_export(folder_ / (name + "-export"), folder_ / (name + "-merged"));
  }
  run({"export", "--checkpoint", at("run"), "--format", "peft", "--output", at("adapter")});
  EXPECT_TRUE(fs::exists(folder_ / "adapter" / "adapter_model.safetensors"));
  const double merged = perplexity("run-merged");
  EXPECT_NEAR(merged, perplexity("one-merged"), 1e-5 * merged);
  EXPECT_NEAR(merged, perplexity("run"), 1e-4 * merged);
}

// Memory of an export does not grow with the number of layers.
TEST_F(ShardedFolder, AnExportHoldsOneParameterAtATime) {
  constexpr std::int64_t kHidden = 256, kInner = 1024, kLayers = 24;
  const auto peak_bytes = [&](const std::string& name, std::int64_t layers) {
    write_config(fmt::format(R"("model_type": "llama", "vocab_size": 259, "hidden_size": {}, "intermediate_size": {},
        "num_hidden_layers": {}, "num_attention_heads": 4, "num_key_value_heads": 4)",
                             kHidden, kInner, layers));
    train(2, name, {"--training.steps=1", "--lr_schedule.warmup_steps=0", "--training.global_batch_size=2"});
    const pid_t exporter =
        testing::start_program(scratch_.path(), {"export", "--checkpoint", at(name), "--output", at(name + "-model")});
    int status = -1;
    rusage used{};
    EXPECT_EQ(::wait4(exporter, &status, 0, &used), exporter);
    EXPECT_EQ(status, 0) << read_file(scratch_ / "stderr.txt");
    return std::int64_t{used.ru_maxrss} * 1024;
  };
  const std::int64_t few = peak_bytes("few", 2), many = peak_bytes("many", kLayers);
  const std::int64_t layer = (4 * kHidden * kHidden + 3 * kHidden * kInner) * 4, fused = 2 * kHidden * kInner * 4;
  EXPECT_LT(many - few, 4 * fused) << few << " and " << many << " bytes; " << (kLayers - 2) * layer
                                   << " of weights more";
}

}  // namespace
}  // namespace quench
