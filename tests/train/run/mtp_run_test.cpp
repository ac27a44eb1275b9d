// Runs that train layers of multi-token prediction.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/safetensors/safetensors_folder.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/model_folder/model_folder.h"
#include "train/plan/estimate.h"
#include "train/setup/data_setup.h"

namespace quench {
namespace {

using testing::expect_same_tensors;
using ::testing::HasSubstr;
using testing::TinyRun;

constexpr const char* kLayer = "model.layers.2.";

class MtpRun : public ::testing::Test {
 protected:
  [[nodiscard]] RunConfig config(const std::string& name, std::vector<std::string> more = {}) const {
    std::vector<std::string> all{"--model.model_type=deepseek_v3",
                                 "--model.num_key_value_heads=4",
                                 "--model.tie_word_embeddings=false",
                                 "--model.q_lora_rank=12",
                                 "--model.kv_lora_rank=16",
                                 "--model.qk_nope_head_dim=6",
                                 "--model.qk_rope_head_dim=4",
                                 "--model.v_head_dim=8",
                                 "--model.n_routed_experts=8",
                                 "--model.num_experts_per_tok=2",
                                 "--model.moe_intermediate_size=12",
                                 "--model.n_group=2",
                                 "--model.topk_group=1",
                                 "--model.n_shared_experts=1",
                                 "--model.first_k_dense_replace=1",
                                 "--training.steps=12",
                                 "--checkpoint.interval=4",
                                 "--lr_schedule.decay_steps=40"};
    all.insert(all.end(), more.begin(), more.end());
    return run_.config(name, all);
  }
  [[nodiscard]] RunConfig with_layers(const std::string& name, std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--model.num_nextn_predict_layers=1", "--training.mtp_loss_weight=0.3"});
    return config(name, more);
  }
  // One step over a model folder.
  [[nodiscard]] RunConfig over(const std::string& model, const std::string& name, std::vector<std::string> more) const {
    more.insert(more.end(), {"--run.folder=" + run_.folder(name).string(), "--training.steps=1"});
    const std::string text = R"({"model": {"path": ")" + model + R"("}, "data": {"train": [")" +
                             run_.folder("train.bin").string() + R"("], "seq_len": 24},
      "training": {"micro_batch_size": 2, "global_batch_size": 4, "dtype": "f32"},
      "metrics": {"log_every": 1, "tensorboard": false, "log_level": "warn", "progress": "off"}})";
    return parse_run_config(text, run_.folder(name + ".json").string(), more);
  }
  [[nodiscard]] std::vector<Json> metrics(const std::string& name) const {
    std::vector<Json> all;
    std::istringstream lines(testing::read_file(run_.folder(name) / "metrics/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
    return all;
  }
  [[nodiscard]] bool holds_layer(const std::filesystem::path& folder) const {
    return std::ranges::any_of(SafetensorsFolder(folder).names(),
                               [](const std::string& name) { return name.starts_with(kLayer); });
  }

  TinyRun run_;
};

TEST_F(MtpRun, BothLossesFallAndAResumedRunIsTheSame) {
  (void)run_.run(with_layers("whole"));
  const std::vector<Json> records = metrics("whole");
  ASSERT_EQ(records.size(), 12u);
  EXPECT_LT(records.back().at("loss").as_double(), records.front().at("loss").as_double());
  EXPECT_LT(records.back().at("objective").at("mtp_loss").as_double(),
            records.front().at("objective").at("mtp_loss").as_double());
  (void)run_.run(with_layers("rest", {"--checkpoint.resume=" + run_.checkpoint("whole", 4).string()}));
  expect_same_tensors(run_.checkpoint("rest", 12), run_.checkpoint("whole", 12));
  for (const char* level : {"selective", "full"}) {
    (void)run_.run(with_layers(level, {"--training.activation_checkpoint=" + std::string(level)}));
    expect_same_tensors(run_.checkpoint(level, 12), run_.checkpoint("whole", 12));
  }
}

TEST_F(MtpRun, TheFirstLossIsThatOfTheModelAlone) {
  (void)run_.run(with_layers("with", {"--training.steps=1"}));
  (void)run_.run(config("without", {"--training.steps=1"}));
  EXPECT_EQ(metrics("with").front().at("loss"), metrics("without").front().at("loss"));
}

TEST_F(MtpRun, AnExportIsTheStartOfAnotherRun) {
  const std::string folder = (run_.folder("whole") / "out").string();
  (void)run_.run(with_layers("whole", {"--export.folder=" + folder}));
  EXPECT_TRUE(holds_layer(folder));
  // Under a learning rate below the precision of f32, its tensors are written again.
  const std::string again = (run_.folder("again") / "out").string();
  (void)run_.run(over(folder, "again",
                      {"--training.mtp_loss_weight=0.1", "--optimizer.lr=1e-30", "--training.router_bias_speed=0",
                       "--export.folder=" + again}));
  const SafetensorsFolder first(folder), second(again);
  ASSERT_EQ(first.names(), second.names());
  for (const std::string& name : first.names()) {
    const auto x = first.at(name), y = second.at(name);
    std::vector<std::byte> left(x.entry->nbytes()), right(y.entry->nbytes());
    x.read(left);
    y.read(right);
    EXPECT_EQ(left, right) << name;
  }
  // Left out where they are not trained.
  const std::string plain = (run_.folder("plain") / "out").string();
  (void)run_.run(over(folder, "plain", {"--export.folder=" + plain}));
  EXPECT_FALSE(holds_layer(plain));
  EXPECT_EQ(read_model_config(std::filesystem::path(plain)).mtp.declared, 0);
  // New ones over weights without.
  (void)run_.run(over(plain, "fresh", {"--model.num_nextn_predict_layers=2", "--training.mtp_loss_weight=0.1"}));
  EXPECT_TRUE(std::isfinite(metrics("fresh").front().at("objective").at("mtp_loss_2").as_double()));
}

TEST_F(MtpRun, QuantizedExportsLeaveThemOut) {
  const std::string folder = (run_.folder("whole") / "out").string();
  (void)run_.run(with_layers("whole", {"--export.folder=" + folder, "--export.format=compressed-tensors",
                                       "--export.scheme=int8_weight_only", "--training.steps=2"}));
  EXPECT_FALSE(holds_layer(folder));
  EXPECT_EQ(read_model_config(std::filesystem::path(folder)).mtp.declared, 0);
}

TEST_F(MtpRun, ACheckpointWithoutThemIsRefusedByKey) {
  (void)run_.run(config("whole", {"--model.num_nextn_predict_layers=1"}));
  try {
    (void)run_.run(with_layers("rest", {"--checkpoint.resume=" + run_.checkpoint("whole", 4).string()}));
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("training.mtp_loss_weight"));
    EXPECT_THAT(error.what(), HasSubstr("was written without layers of multi-token prediction"));
  }
}

TEST_F(MtpRun, TheEstimateCountsThem) {
  const RunEstimate with = estimate_run(ResolvedConfig(with_layers("a")), Device{}),
                    without = estimate_run(ResolvedConfig(config("b")), Device{});
  EXPECT_GT(with.parameters, without.parameters);
  EXPECT_GT(with.device.peak, without.device.peak);
  EXPECT_GT(with.flops_per_token.total(), without.flops_per_token.total());
}

TEST_F(MtpRun, Float8AppliesToTheirLinearLayers) {
  const std::vector<std::string> recipe = {"--recipe.name=float8_rowwise", "--training.dtype=bf16",
                                           "--training.steps=4"};
  (void)run_.run(with_layers("whole", recipe));
  EXPECT_TRUE(std::isfinite(metrics("whole").back().at("objective").at("mtp_loss").as_double()));
}

}  // namespace
}  // namespace quench
