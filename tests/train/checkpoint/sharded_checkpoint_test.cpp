// Checkpoints that several processes write together, read by any number of them. Ranks are threads here, which talk
// through loopback.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/number/random.h"
#include "nn/decoder/causal_lm.h"
#include "nn/optim/adamw.h"
#include "tests/testing.h"
#include "tests/train/checkpoint/on_ranks.h"
#include "train/checkpoint/checkpoint_save.h"
#include "train/step/training_state.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::on_ranks;
using testing::TempDir;

// A vocabulary that no small number divides, and norms of two rows.
nn::ModelConfig odd_model() {
  return nn::parse_model_config(
      Json::parse(R"({"model_type": "qwen3", "vocab_size": 509, "hidden_size": 24, "intermediate_size": 37,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2,
      "max_position_embeddings": 64, "tie_word_embeddings": false})"),
      "test");
}

// The part of a training state that one rank holds; its values depend on names and global places alone.
struct State {
  explicit State(const nn::Sharding& sharding) {
    nn::ParameterOptions options;
    options.dtype = DType::bf16;
    options.sharding = sharding;
    model = std::make_unique<nn::CausalLm>(odd_model(), options);
    model->initialize(7);
    optimizer = std::make_unique<nn::AdamW>(model->parameters(), nn::OptimizerOptions{.master_weights = true});
  }
  void fill() const {
    for (const CheckpointTensor& tensor : training_tensors(*model, *optimizer)) {
      if (tensor.data.dtype() != DType::f32 || tensor.data.numel() == 0) continue;
      const std::int64_t columns = tensor.global_shape.numel() / tensor.global_shape[0];
      for (std::int64_t i = 0; i < tensor.data.numel(); ++i)
        tensor.data.data<float>()[i] =
            random_normal({3, hash64(tensor.name), 0}, static_cast<std::uint64_t>(tensor.slice.start * columns + i));
    }
  }
  std::unique_ptr<nn::CausalLm> model;
  std::unique_ptr<nn::AdamW> optimizer;
};

void save(const fs::path& folder, int ranks, std::int64_t step) {
  const auto errors = on_ranks(ranks, [&](distributed::ProcessGroup& group) {
    const State state({group.rank(), group.size()});
    state.fill();
    (void)save_checkpoint(folder, {.step = step}, training_tensors(*state.model, *state.optimizer), &group);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(ShardedCheckpoint, AnyWorldSizeLoadsAnyOtherBitForBit) {
  const State whole({});
  whole.fill();
  const auto expected = training_tensors(*whole.model, *whole.optimizer);
  for (int saved = 1; saved <= 4; ++saved) {
    const TempDir folder;
    save(folder.path(), saved, 3);
    CheckpointReader reader(folder / "step-3");
    EXPECT_EQ(reader.manifest().world_size, saved);
    EXPECT_EQ(reader.manifest().files.size(), static_cast<std::size_t>(saved));
    EXPECT_TRUE(verify_checkpoint(folder / "step-3").ok());
    for (int loaded = 1; loaded <= 4; ++loaded)
      for (int rank = 0; rank < loaded; ++rank) {
        const State part({rank, loaded});
        restore_training_tensors(reader, *part.model, *part.optimizer);
        const auto tensors = training_tensors(*part.model, *part.optimizer);
        ASSERT_EQ(tensors.size(), expected.size());
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          const Tensor rows = expected[i].data.narrow(0, tensors[i].slice.start, tensors[i].slice.length);
          EXPECT_EQ(std::memcmp(tensors[i].data.raw_data(), rows.raw_data(), rows.nbytes()), 0)
              << tensors[i].name << ", saved by " << saved << ", rank " << rank << " of " << loaded;
        }
      }
  }
}

TEST(ShardedCheckpoint, TensorsWithFewerRowsThanRanks) {
  const TempDir folder;
  const auto errors = on_ranks(4, [&](distributed::ProcessGroup& group) {
    const nn::Sharding sharding{group.rank(), group.size()};
    std::vector<CheckpointTensor> tensors;
    for (const std::int64_t rows : {1, 2, 3, 5}) {
      const nn::ShardSpec shard = sharding.of(rows);
      const Tensor data = Tensor::empty({shard.rows, 3}, DType::f32);
      for (std::int64_t i = 0; i < data.numel(); ++i)
        data.data<float>()[i] = static_cast<float>(shard.row_begin * 3 + i);
      tensors.push_back({fmt::format("rows{}", rows), {rows, 3}, {shard.row_begin, shard.rows}, data});
    }
    (void)save_checkpoint(folder.path(), {.step = 1}, tensors, &group);
  });
  for (const std::string& error : errors) ASSERT_EQ(error, "");
  CheckpointReader reader(folder / "step-1");
  for (const std::int64_t rows : {1, 2, 3, 5}) {
    const Tensor data = Tensor::empty({rows, 3}, DType::f32);
    reader.read(fmt::format("rows{}", rows), data);
    for (std::int64_t i = 0; i < data.numel(); ++i) EXPECT_EQ(data.data<float>()[i], static_cast<float>(i));
  }
}

// A save that fails on one rank fails on all; the earlier checkpoint stays.
TEST(ShardedCheckpoint, ErrorOnOneRankFailsAllRanks) {
  const TempDir folder;
  save(folder.path(), 2, 1);
  const auto errors = on_ranks(3, [&](distributed::ProcessGroup& group) {
    const State state({group.rank(), group.size()});
    std::vector<CheckpointTensor> tensors = training_tensors(*state.model, *state.optimizer);
    if (group.rank() == 1) tensors[2].slice.start += 1;  // rows that rank 2 has too
    (void)save_checkpoint(folder.path(), {.step = 2}, tensors, &group);
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("do not continue at row"));
  EXPECT_FALSE(fs::exists(folder / "step-2"));
  EXPECT_TRUE(verify_checkpoint(folder / "step-1").ok());
  for (const auto& entry : fs::directory_iterator(folder.path()))
    EXPECT_THAT(entry.path().filename().string(), ::testing::Not(HasSubstr(".tmp-")));
}

TEST(ShardedCheckpoint, ReplicasMaySaveNoTensors) {
  const TempDir folder;
  const auto errors = on_ranks(4, [&](distributed::ProcessGroup& group) {
    const State state({group.rank() % 2, 2});
    const bool gives = group.rank() < 2;
    const auto tensors = gives ? training_tensors(*state.model, *state.optimizer) : std::vector<CheckpointTensor>();
    (void)save_checkpoint(folder.path(), {.step = 1}, tensors, &group);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_TRUE(verify_checkpoint(folder / "step-1").ok());
}

}  // namespace
}  // namespace quench
