// Ranks load the checkpoint that rank 0 chooses, or none.

#include "train/checkpoint/checkpoint_choice.h"

#include <gmock/gmock.h>

#include <array>

#include "tests/fault/checkpoint_contents.h"
#include "tests/testing.h"
#include "tests/train/checkpoint/on_ranks.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/checkpoint_save.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::on_ranks;

class CheckpointChoice : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;

  CheckpointChoice() {
    for (const std::int64_t step : {1, 2}) save(step);
  }
  void save(std::int64_t step) { save_checkpoint(folder_.path(), tensors_.state(step), tensors_.at(step)); }

  // Errors by rank. `choose` runs on rank 0, `load` on all, with the rank.
  std::vector<std::string> load(const std::function<fs::path(const LoadCheckpoint&)>& choose,
                                const std::function<void(int, CheckpointReader&)>& load_one = {}) {
    loaded_ = {};
    return on_ranks(kRanks, [&](distributed::ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      const fs::path path = load_chosen(
          group, Verify::hashes,
          [&](CheckpointReader& reader) {
            distributed::together(group, "load", [&] {
              if (load_one) load_one(group.rank(), reader);
            });
            steps_[rank] = reader.state().step;
          },
          [&](const LoadCheckpoint& offer) {
            EXPECT_EQ(rank, 0u) << "chosen by another rank";
            return choose(offer);
          });
      loaded_[rank] = path.filename().string();
    });
  }
  fs::path newest(const LoadCheckpoint& offer) {
    const auto info = load_latest(folder_.path(), offer);
    return info ? info->path : fs::path();
  }
  auto choose_newest() {
    return [this](const LoadCheckpoint& offer) { return newest(offer); };
  }

  testing::TempDir folder_;
  testing::StepTensors tensors_;
  std::array<std::string, kRanks> loaded_;
  std::array<std::int64_t, kRanks> steps_{};
};

TEST_F(CheckpointChoice, OneListingDecidesForAll) {
  EXPECT_THAT(load(choose_newest()), Each(""));
  EXPECT_THAT(loaded_, Each("step-2"));
  EXPECT_THAT(steps_, Each(2));
}

TEST_F(CheckpointChoice, NoCheckpointIsAgreedByAllRanks) {
  EXPECT_THAT(load([](const LoadCheckpoint&) { return fs::path(); }), Each(""));
  EXPECT_THAT(loaded_, Each(""));
}

// Damaged as one rank reads it.
TEST_F(CheckpointChoice, AllRanksFallBackTogether) {
  const auto damaged_on_rank_1 = [](int rank, CheckpointReader& reader) {
    if (rank == 1 && reader.state().step == 2) QUENCH_FAIL(ErrorCode::corrupt, "a damaged tensor");
  };
  EXPECT_THAT(load(choose_newest(), damaged_on_rank_1), Each(""));
  EXPECT_THAT(loaded_, Each("step-1"));
  EXPECT_THAT(steps_, Each(1));
}

TEST_F(CheckpointChoice, ErrorOnOneRankFailsAllRanks) {
  const auto refused_on = [](int refusing) {
    return [refusing](int rank, CheckpointReader&) {
      if (rank == refusing) QUENCH_FAIL(ErrorCode::bad_config, "another vocabulary");
    };
  };
  EXPECT_THAT(load(choose_newest(), refused_on(0)),
              ElementsAre("another vocabulary", "rank 0: another vocabulary", "rank 0: another vocabulary"));
  // The rank that has it reports it as its own.
  EXPECT_THAT(load(choose_newest(), refused_on(1)),
              ElementsAre("rank 1: another vocabulary", "another vocabulary", HasSubstr("rank 1: another vocabulary")));
  EXPECT_THAT(load([](const LoadCheckpoint&) -> fs::path { QUENCH_FAIL(ErrorCode::bad_config, "no checkpoint"); }),
              ElementsAre("no checkpoint", "rank 0: no checkpoint", "rank 0: no checkpoint"));
}

// As a rank on another host may see a network folder: not yet, or as it was before.
TEST_F(CheckpointChoice, ACheckpointThatAnotherRankDoesNotFindIsRefused) {
  const auto errors = load([&](const LoadCheckpoint& offer) {
    CheckpointReader reader(folder_ / "step-2");
    fs::rename(folder_ / "step-2", folder_ / "away");
    offer(reader);
    return reader.path();
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("step-2, which this rank does not find"),
                                 HasSubstr("all ranks must read one folder"))));
}

TEST_F(CheckpointChoice, AnotherSaveUnderTheSamePathIsRefused) {
  const auto errors = load([&](const LoadCheckpoint& offer) {
    CheckpointReader reader(folder_ / "step-2");
    save(2);
    offer(reader);
    return reader.path();
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("step-2 of save "), HasSubstr("this rank finds save "), HasSubstr("start again"))));
  EXPECT_THAT(steps_, Each(0)) << "nothing was loaded";
}

TEST_F(CheckpointChoice, LoadsTheFirstUndamagedCheckpoint) {
  const std::vector<fs::path> line{folder_ / "step-3", folder_ / "step-2", folder_ / "step-1"};
  std::vector<std::int64_t> tried;
  const auto damaged_from = [&](std::int64_t step) {
    tried.clear();
    return [&tried, step](CheckpointReader& reader) {
      tried.push_back(reader.state().step);
      QUENCH_CHECK_AS(ErrorCode::corrupt, reader.state().step < step, "a damaged tensor");
    };
  };
  EXPECT_EQ(load_first(line, damaged_from(9)), folder_ / "step-2") << "step-3 is absent";
  EXPECT_EQ(load_first(line, damaged_from(2)), folder_ / "step-1");
  EXPECT_THAT(tried, ElementsAre(2, 1));
  EXPECT_EQ(load_first(line, damaged_from(0)), "");
  EXPECT_THROW(load_first(line, [](CheckpointReader&) { QUENCH_FAIL(ErrorCode::bad_config, "refused"); }), Error);
  fs::remove(folder_ / "step-2" / "manifest.json");
  EXPECT_THROW(load_first(line, damaged_from(9)), Error) << "unknown content";
}

TEST_F(CheckpointChoice, ASingleProcessChoosesForItself) {
  std::int64_t step = 0;
  const fs::path path = load_chosen(
      *distributed::Ranks::single()->host, Verify::none, [&](CheckpointReader& reader) { step = reader.state().step; },
      choose_newest());
  EXPECT_EQ(path, folder_ / "step-2");
  EXPECT_EQ(step, 2);
}

}  // namespace
}  // namespace quench
