// Layers of multi-token prediction, sharded: the same losses and weights as in one process.

#include <gmock/gmock.h>

#include "tests/distributed/sharded_training.h"

namespace quench {
namespace {

using testing::kSameLoss;
using testing::ShardedTraining;

class MtpTraining : public ShardedTraining {
 protected:
  void SetUp() override {
    ShardedTraining::SetUp();
    write_model(false);
  }
  void write_model(bool tied) {
    write_config(std::string(R"("model_type": "deepseek_v3", "vocab_size": 509, "hidden_size": 24,
      "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
      "q_lora_rank": 10, "kv_lora_rank": 12, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 8,
      "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 7, "n_group": 4, "topk_group": 2,
      "n_shared_experts": 2, "first_k_dense_replace": 1, "num_nextn_predict_layers": 2, "tie_word_embeddings": )") +
                 (tied ? "true" : "false"));
  }
  void run(int ranks, const std::string& name, std::vector<std::string> more = {}) {
    more.insert(more.end(),
                {"--training.mtp_loss_weight=0.5", "--export.folder=" + (folder_ / (name + "-out")).string()});
    train(ranks, name, more);
  }
  void expect_same_depths(const std::string& name, const std::string& as) {
    expect_same_run(name, as);
    const auto got = records(name);
    for (const auto& [step, record] : records(as))
      for (const char* key : {"mtp_loss_1", "mtp_loss_2"}) {
        const double value = record.at("objective").at(key).as_double();
        EXPECT_NEAR(got.at(step).at("objective").at(key).as_double(), value, kSameLoss * value)
            << name << ", step " << step;
      }
  }
};

TEST_F(MtpTraining, AnyLayoutTrainsTheSame) {
  run(1, "one");
  run(2, "two");
  run(2, "kept", {"--parallel.reshard_after_forward=false", "--training.activation_checkpoint=selective"});
  run(2, "experts", {"--parallel.expert=2"});
  run(4, "hybrid", {"--parallel.shard=2", "--parallel.replicate=2"});
  for (const char* name : {"two", "kept", "experts", "hybrid"}) expect_same_depths(name, "one");
}

TEST_F(MtpTraining, ATiedHeadIsReadByEveryDepth) {
  write_model(true);
  run(1, "one");
  run(2, "two");
  expect_same_depths("two", "one");
}

TEST_F(MtpTraining, OtherProcessesContinueFromACheckpointOfOne) {
  run(1, "one");
  const std::string resume = "--checkpoint.resume=" + (folder_ / "one/checkpoints/step-4").string();
  run(2, "two", {resume});
  const auto got = records("two");
  for (const auto& [step, record] : records("one")) {
    if (step <= 4) continue;
    const double value = record.at("loss").as_double();
    EXPECT_NEAR(got.at(step).at("loss").as_double(), value, kSameLoss * value) << step;
  }
}

TEST_F(MtpTraining, TwoProcessesContinueBitForBit) {
  run(2, "whole");
  run(2, "again", {"--checkpoint.resume=" + (folder_ / "whole/checkpoints/step-4").string()});
  expect_same_export(folder_ / "again-out", folder_ / "whole-out");
}

TEST_F(MtpTraining, EvaluationRunsWithoutTheseLayers) {
  const std::string text = (folder_ / "text.txt").string();
  const std::vector<std::string> more = {"--data.validation=[\"" + text + "\"]", "--evaluation.interval=4"};
  run(1, "one", more);
  run(2, "two", more);
  expect_same_run("two", "one");
}

}  // namespace
}  // namespace quench
