// Schedules and layers of pipeline stages.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>

#include "core/json/json.h"
#include "distributed/pipeline/pipeline_schedule.h"
#include "distributed/pipeline/stage_layers.h"

namespace quench::distributed {
namespace {

// Runs the passes of all stages, each as soon as its input has been sent; returns the most passes held at a time, by
// stage.
std::vector<std::size_t> run(int stages, int chunks, std::int64_t micro_batches) {
  struct Stage {
    std::vector<PipelineOp> ops;
    std::size_t next = 0, held = 0, most = 0;
  };
  std::vector<Stage> all;
  for (int stage = 0; stage < stages; ++stage)
    all.push_back({pipeline_schedule({stage, stages, chunks}, micro_batches)});
  // Messages in order, by receiver and direction.
  std::map<std::pair<int, bool>, std::deque<PipelineOp>> sent;
  bool moved = true;
  while (std::exchange(moved, false))
    for (int stage = 0; stage < stages; ++stage) {
      Stage& own = all[static_cast<std::size_t>(stage)];
      const PipelinePlace place{stage, stages, chunks};
      while (own.next < own.ops.size()) {
        const PipelineOp op = own.ops[own.next];
        if (op.forward ? !place.is_first(op.chunk) : !place.is_last(op.chunk)) {
          std::deque<PipelineOp>& arriving = sent[{stage, op.forward}];
          if (arriving.empty()) break;
          EXPECT_EQ(arriving.front(), op) << "stage " << stage;
          arriving.pop_front();
        }
        if (op.forward && !place.is_last(op.chunk))
          sent[{(stage + 1) % stages, true}].push_back(
              {true, op.chunk + (stage + 1 == stages ? 1 : 0), op.micro_batch});
        if (!op.forward && !place.is_first(op.chunk))
          sent[{(stage + stages - 1) % stages, false}].push_back(
              {false, op.chunk - (stage == 0 ? 1 : 0), op.micro_batch});
        own.held += op.forward ? 1 : static_cast<std::size_t>(-1);
        own.most = std::max(own.most, own.held);
        ++own.next;
        moved = true;
      }
    }
  std::vector<std::size_t> most;
  for (const Stage& stage : all) {
    EXPECT_EQ(stage.next, stage.ops.size()) << "a stage waits for ever";
    EXPECT_EQ(stage.ops.size(), static_cast<std::size_t>(2 * micro_batches * chunks));
    most.push_back(stage.most);
  }
  return most;
}

TEST(PipelineSchedule, OneStageRunsEachMicroBatchForwardAndBackward) {
  const std::vector<PipelineOp> expected = {{true, 0, 0}, {false, 0, 0}, {true, 0, 1}, {false, 0, 1}};
  EXPECT_EQ(pipeline_schedule({}, 2), expected);
}

TEST(PipelineSchedule, StagesAgreeAndHoldNoMorePassesThanTheStagesAfterThem) {
  for (const int stages : {2, 3, 4, 8})
    for (const std::int64_t micro_batches : {1, 2, 5, 16}) {
      const std::vector<std::size_t> most = run(stages, 1, micro_batches);
      for (int stage = 0; stage < stages; ++stage)
        EXPECT_EQ(most[static_cast<std::size_t>(stage)],
                  static_cast<std::size_t>(std::min<std::int64_t>(stages - stage, micro_batches)));
    }
}

TEST(PipelineSchedule, InterleavedStagesAgree) {
  for (const int stages : {2, 3, 4})
    for (const int chunks : {2, 3}) {
      for (const int rounds : {1, 2, 3}) (void)run(stages, chunks, std::int64_t{stages} * rounds);
      EXPECT_EQ(run(stages, chunks, std::int64_t{stages} * 4)[0],
                static_cast<std::size_t>(2 * (stages - 1) + (chunks - 1) * stages + 1));
    }
  EXPECT_THROW((void)pipeline_schedule({0, 2, 2}, 3), Error);
}

nn::ModelConfig model_of(int layers, int vocabulary) {
  return nn::parse_model_config(Json::parse(fmt::format(R"({{"model_type": "llama", "vocab_size": {}, "hidden_size": 64,
      "intermediate_size": 128, "num_hidden_layers": {}, "num_attention_heads": 4}})",
                                                        vocabulary, layers)),
                                "the test");
}

TEST(StageLayers, HeadAndEmbeddingCount) {
  using Layers = std::vector<std::int64_t>;
  EXPECT_EQ(balanced_layers(model_of(8, 64), 16, 2), (Layers{4, 4}));
  EXPECT_EQ(balanced_layers(model_of(8, 64), 16, 8), Layers(8, 1));
  // The head costs as much as several layers.
  const Layers heavy = balanced_layers(model_of(8, 3072), 16, 2);
  EXPECT_EQ(heavy, (Layers{6, 2}));
  for (const int parts : {1, 2, 3, 5, 7}) {
    const Layers layers = balanced_layers(model_of(7, 512), 16, parts);
    EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), std::int64_t{0}), 7);
    EXPECT_GE(*std::ranges::min_element(layers), 1);
  }
}

TEST(StageLayers, ChunksOfAStageAreApart) {
  const std::vector<std::int64_t> layers = {1, 2, 3, 4};
  EXPECT_EQ(stage_chunks(layers, {0, 2, 2}), (std::vector<nn::LayerRange>{{0, 1}, {3, 6}}));
  EXPECT_EQ(stage_chunks(layers, {1, 2, 2}), (std::vector<nn::LayerRange>{{1, 3}, {6, 10}}));
}

}  // namespace
}  // namespace quench::distributed
