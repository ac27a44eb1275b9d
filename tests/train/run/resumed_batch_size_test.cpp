// Sequences of a step on resume: kept, or changed by leave, with as many epochs.

#include <gmock/gmock.h>

#include <cmath>

#include "tests/train/run/trainer_fixture.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/config/presets.h"
#include "train/record/run_progress.h"
#include "train/session/data_setup.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using Options = std::vector<std::string>;

// Without global_batch_size a step is one micro-batch.
class ResumedBatchSize : public ::testing::Test {
 protected:
  [[nodiscard]] RunConfig config(const std::string& name, const Options& more) const {
    Options all{"~training.global_batch_size", "--training.micro_batch_size=4", "--lr_schedule.decay_steps=100",
                "--checkpoint.interval=0"};
    all.insert(all.end(), more.begin(), more.end());
    return tiny_.config(name, all);
  }
  [[nodiscard]] std::string refusal(const RunConfig& of) const {
    try {
      tiny_.run(of);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      return error.what();
    }
    return {};
  }
  testing::TinyRun tiny_;
};

TEST_F(ResumedBatchSize, DoesNotFollowTheMicroBatch) {
  tiny_.run(config("run", {"--training.steps=2"}));
  EXPECT_THAT(refusal(config("run", {"--training.steps=4", "--training.micro_batch_size=2"})),
              HasSubstr("training.global_batch_size: 4 -> 2"));
  const Options same{"--training.steps=4", "--training.micro_batch_size=2", "--training.global_batch_size=4"};
  EXPECT_EQ(tiny_.run(config("run", same)).step, 4);
  EXPECT_EQ(CheckpointReader(tiny_.checkpoint("run", 4)).state().samples, 16);
}

TEST_F(ResumedBatchSize, EpochsCountTheSequencesRead) {
  const Options epoch{"--training.epochs=1", "--checkpoint.allow_changes=training.global_batch_size"};
  const auto with = [&](Options more) {
    more.insert(more.begin(), epoch.begin(), epoch.end());
    return more;
  };
  const RunConfig first = config("run", with({"--training.steps=3"}));
  const auto rows = static_cast<std::int64_t>(open_data(first, resolve_model_config(first.model)).train->row_count());
  for (const int batch : {2, 4, 16}) {
    const std::string name = fmt::format("batch{}", batch);
    tiny_.run(config(name, with({"--training.steps=3"})));
    const std::int64_t expected = 3 + (rows - 12 + batch - 1) / batch;
    const Options changed = with({"~training.steps", fmt::format("--training.micro_batch_size={}", batch)});
    EXPECT_EQ(tiny_.run(config(name, changed)).step, expected) << batch;
    const std::int64_t samples = CheckpointReader(tiny_.checkpoint(name, static_cast<int>(expected))).state().samples;
    EXPECT_GE(samples, rows);
    EXPECT_LT(samples, rows + batch);
    EXPECT_EQ(tiny_.run(config(name, changed)).step, expected) << "finished";
  }
}

// Checkpoints of runs in one process recorded no number before.
TEST_F(ResumedBatchSize, UnrecordedOnesAreAMicroBatch) {
  const RunConfig four = config("run", {}), two = config("run", {"--training.micro_batch_size=2"});
  const RunIdentity identity{.model = model_config(four.model)};
  LossGuard guard({});
  CheckpointState state = checkpoint_state(four, identity, {.step = 3, .samples = 12}, guard);
  Json training = state.config.at("training");
  EXPECT_EQ(training.at("global_batch_size").as_int(), 4);
  training.set("global_batch_size", Json());
  state.config.set("training", training);
  EXPECT_EQ(restore_progress(state, four, identity, guard).samples, 12);
  EXPECT_THROW((void)restore_progress(state, two, identity, guard), Error);
}

}  // namespace
}  // namespace quench
