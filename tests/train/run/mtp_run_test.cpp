// Runs that train layers of multi-token prediction.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/safetensors/safetensors_folder.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/model_folder/model_folder.h"
#include "train/objectives/mtp/run/mtp_objective.h"
#include "train/plan/estimate.h"
#include "train/plan/step_time.h"
#include "train/session/data_setup.h"
#include "train/session/model_setup.h"
#include "train/session/optimizer_setup.h"
#include "train/session/parallel_setup.h"
#include "train/step/train_step.h"
#include "train/step/training_state.h"

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

// The head is used once more by these layers, whose backward passes come first.
TEST_F(MtpRun, UpdatesInTheBackwardPassTrainTheSame) {
  const std::vector<std::string> once{"--training.max_norm=0", "--training.steps=4"};
  (void)run_.run(with_layers("after", once));
  std::vector<std::string> within = once;
  within.emplace_back("--optimizer.update_in_backward=true");
  (void)run_.run(with_layers("within", within));
  EXPECT_EQ(run_.losses("within"), run_.losses("after"));
  expect_same_tensors(run_.checkpoint("within", 4), run_.checkpoint("after", 4));
}

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

// Passes of two decoder layers, one of them with experts, and of the MTP layer: each as in a model of its own.
TEST_F(MtpRun, ThePredictedTimeCountsTheirPassesOverMemory) {
  const auto bytes = [&](const RunConfig& run) {
    StepWork work;
    add_activation_work(run_model_config(run), {}, 1, work);
    return work.activation_bytes;
  };
  const double none = bytes(config("a")), one = bytes(with_layers("b")),
               two = bytes(config("c", {"--model.num_nextn_predict_layers=2", "--training.mtp_loss_weight=0.3"})),
               deeper = bytes(config("d", {"--model.num_hidden_layers=3"}));
  EXPECT_DOUBLE_EQ(two - one, one - none);
  // A decoder layer's, a second cross-entropy, the parts around the block.
  EXPECT_GT(one - none, deeper - none + 6 * 64);
  EXPECT_LT(one - none, deeper - none + 6 * 64 + 64 * 32);
}

// The embedding is gathered once for all depths and a tied head.
TEST_F(MtpRun, ShardsOfTheEmbeddingAreGatheredOnce) {
  constexpr std::int64_t kRows = 4096;  // beyond the weights of a layer
  const auto gathered = [&](int depths, bool tied) {
    RunConfig run = config("run", {fmt::format("--model.num_nextn_predict_layers={}", depths),
                                   fmt::format("--model.tie_word_embeddings={}", tied),
                                   fmt::format("--model.vocab_size={}", kRows), "--training.mtp_loss_weight=0.3"});
    run.training.global_batch_size = 2 * run.training.micro_batch_size;
    set_ranks(run, 2);
    return estimate_run(ResolvedConfig(run), Device{}).gather_bytes;
  };
  const std::int64_t table = kRows * 32 * 4 / 2;  // sent by each of two
  EXPECT_LT(gathered(2, false) - gathered(1, false), table / 2);
  EXPECT_LT(gathered(3, false) - gathered(2, false), table / 2);
  EXPECT_LT(gathered(2, true) - gathered(1, true), table / 2);
  // Decoder and depths gather it, and an untied head is a table of its own.
  EXPECT_EQ(gathered(1, false) - gathered(1, true), table);
}

TEST_F(MtpRun, OptimizerStateInHostMemoryGivesTheSameBits) {
  for (const bool streamed : {false, true}) {
    const RunConfig run =
        with_layers("run", {"--training.micro_batch_size=1", fmt::format("--optimizer.offload_streamed={}", streamed),
                            fmt::format("--optimizer.offload_ratio={}", streamed ? 1 : 0), "--training.dtype=bf16"});
    const DataSetup data = open_data(run, run_model_config(run));
    const auto trained = [&](double ratio) {
      const ModelSetup setup = build_model(ResolvedConfig(run), Device{});
      fill_model(*setup.model, run);
      const auto optimizer = make_optimizer(*setup.model, run);
      optimizer->refresh_master();
      MtpObjective objective(*setup.model, 0.3);
      TrainStep step(*setup.model, *optimizer,
                     {.loss = {.chunk_rows = 64},
                      .state_offload_ratio = ratio,
                      .state_streamed = streamed && ratio > 0,
                      .objective = &objective});
      if (ratio == 1) {
        EXPECT_GT(step.offloaded_state_bytes(), 0);
      }
      BatchLoader loader(data.train, {1, 3, 0, 1}, {});
      std::string bytes;
      for (std::int64_t s = 1; s <= 3; ++s) {
        std::vector<Batch> batches;
        for (int i = 0; i < 2; ++i) batches.push_back(std::move(*loader.next()));
        (void)step.accumulate(batches, s);
        step.apply(1e-2, s);
      }
      for (const CheckpointTensor& tensor : training_tensors(*setup.model, *optimizer)) {
        const Tensor values = tensor.data.to(Device{});
        bytes.append(static_cast<const char*>(values.raw_data()), values.nbytes());
      }
      return bytes;
    };
    const std::string here = trained(0);
    for (const double ratio : {0.5, 1.0})
      EXPECT_TRUE(trained(ratio) == here) << ratio << (streamed ? ", streamed" : "");
  }
}

TEST_F(MtpRun, AveragesOfTheirWeightsAreResumedAndExported) {
  const std::vector<std::string> average{"--training.ema_decay=0.75", "--training.steps=6", "--checkpoint.interval=3",
                                         "--export.format=hf", "--export.weights=ema"};
  (void)run_.run(with_layers("whole", average));
  std::vector<std::string> rest = average;
  rest.push_back("--checkpoint.resume=" + run_.checkpoint("whole", 3).string());
  (void)run_.run(with_layers("rest", rest));
  expect_same_tensors(run_.checkpoint("rest", 6), run_.checkpoint("whole", 6));
  const std::string name = std::string(kLayer) + "eh_proj.weight";
  CheckpointReader reader(run_.checkpoint("whole", 6));
  const Tensor kept = Tensor::empty(reader.at("optimizer.ema." + name).shape, DType::f32),
               now = Tensor::empty_like(kept);
  reader.read("optimizer.ema." + name, kept);
  reader.read(name, now);
  const SafetensorsFolder exported(run_.folder("whole") / "export");
  std::vector<std::byte> bytes(kept.nbytes());
  exported.at(name).read(bytes);
  EXPECT_EQ(std::memcmp(bytes.data(), kept.raw_data(), bytes.size()), 0);
  EXPECT_NE(std::memcmp(bytes.data(), now.raw_data(), bytes.size()), 0);
}

TEST_F(MtpRun, Float8AppliesToTheirLinearLayers) {
  const std::vector<std::string> recipe = {"--recipe.name=float8_rowwise", "--training.dtype=bf16",
                                           "--training.steps=4"};
  (void)run_.run(with_layers("whole", recipe));
  EXPECT_TRUE(std::isfinite(metrics("whole").back().at("objective").at("mtp_loss").as_double()));
}

}  // namespace
}  // namespace quench
