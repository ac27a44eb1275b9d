#include <gtest/gtest.h>

#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"

namespace quench {
namespace {

// Rows of 8 tokens, of which every second one holds no target.
std::filesystem::path half_trained(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "masked.bin";
  ShardWriter writer(path, {.vocab_size = 64, .eos_id = 0, .target_mask = true});
  for (int document = 0; document < 16; ++document) {
    const std::vector<std::int32_t> ids{1, 2, 3, 4, 5, 6, 7, 0};
    writer.append(ids, std::vector<std::uint8_t>(ids.size(), document % 2 == 0 ? 1 : 0));
    writer.end_document();
  }
  writer.finish();
  return path;
}

// Momentum and weight decay would move the weights.
TEST(StepsWithoutTargets, MoveNothingAndAreCounted) {
  const testing::TinyRun tiny;
  const testing::TempDir data;
  const RunConfig config = tiny.config(
      "run", {"--data.train=[\"" + half_trained(data.path()).string() + "\"]", "--data.seq_len=8",
              "--data.packing=false", "--data.shuffle=false", "--training.steps=4", "--training.micro_batch_size=1",
              "--training.global_batch_size=1", "--checkpoint.interval=1", "--optimizer.weight_decay=0.1"});
  const TrainResult result = tiny.run(config);
  EXPECT_EQ(result.step, 4);
  EXPECT_GT(result.loss, 0);
  testing::expect_same_tensors(tiny.checkpoint("run", 1), tiny.checkpoint("run", 2));
  testing::expect_same_tensors(tiny.checkpoint("run", 3), tiny.checkpoint("run", 4));
  CheckpointReader first(tiny.checkpoint("run", 1)), third(tiny.checkpoint("run", 3));
  bool moved = false;
  for (const TensorRecord& record : first.manifest().tensors)
    moved = moved || testing::tensor_bytes(first, record) != testing::tensor_bytes(third, third.at(record.name));
  EXPECT_TRUE(moved);
  const std::vector<std::string> losses = tiny.losses("run");
  ASSERT_EQ(losses.size(), 2U) << "a step without targets has no loss";
  EXPECT_TRUE(losses[0].starts_with("1:") && losses[1].starts_with("3:"));
}

// The mean over accumulated micro-batches is that of the ones with targets.
TEST(StepsWithoutTargets, AMicroBatchWithoutTargetsAddsNothing) {
  const testing::TinyRun tiny;
  const testing::TempDir data;
  const std::string train = "--data.train=[\"" + half_trained(data.path()).string() + "\"]";
  const RunConfig config = tiny.config(
      "run", {train, "--data.seq_len=8", "--data.packing=false", "--data.shuffle=false", "--training.steps=2",
              "--training.micro_batch_size=1", "--training.global_batch_size=2", "--checkpoint.interval=1"});
  (void)tiny.run(config);
  EXPECT_EQ(tiny.losses("run").size(), 2U);
}

}  // namespace
}  // namespace quench
