// Checkpoints of tensor-parallel slices, whose rows and columns other meshes read. Ranks are threads here, which talk
// through loopback.

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "core/number/random.h"
#include "nn/decoder/causal_lm.h"
#include "nn/optim/adamw.h"
#include "tests/testing.h"
#include "tests/train/checkpoint/on_ranks.h"
#include "train/checkpoint/checkpoint_save.h"
#include "train/step/training_state.h"

namespace quench {
namespace {

using testing::on_ranks;
using testing::TempDir;

struct SliceMesh {
  int tensor = 1, shard = 1;
  [[nodiscard]] int ranks() const { return tensor * shard; }
};

// Norms of two rows; biases of query, key and value projections.
nn::ModelConfig sliced_model() {
  return nn::parse_model_config(
      Json::parse(R"({"model_type": "qwen2", "vocab_size": 512, "hidden_size": 24, "intermediate_size": 20,
      "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 2,
      "max_position_embeddings": 64, "tie_word_embeddings": false})"),
      "test");
}

// The part of a training state that one rank holds; its values depend on names and places in the whole alone.
struct SlicedState {
  SlicedState(const SliceMesh& mesh, int rank) {
    nn::ParameterOptions options;
    options.dtype = DType::bf16;
    options.sharding = {rank / mesh.tensor, mesh.shard};
    options.tensor = {rank % mesh.tensor, mesh.tensor};
    model = std::make_unique<nn::CausalLm>(sliced_model(), options);
    model->initialize(7);
    optimizer = std::make_unique<nn::AdamW>(model->parameters(), nn::OptimizerOptions{.master_weights = true});
  }
  [[nodiscard]] std::vector<CheckpointTensor> tensors() const { return training_tensors(*model, *optimizer); }
  void fill() const {
    for (const CheckpointTensor& tensor : tensors()) {
      if (tensor.data.dtype() != DType::f32 || tensor.data.numel() == 0) continue;
      const std::int64_t width = tensor.global_shape.numel() / tensor.global_shape[0];
      const std::int64_t columns = tensor.columns.length > 0 ? tensor.columns.length : width;
      for (std::int64_t i = 0; i < tensor.data.numel(); ++i) {
        const std::int64_t at = (tensor.slice.start + i / columns) * width + tensor.columns.start + i % columns;
        tensor.data.data<float>()[i] = random_normal({3, hash64(tensor.name), 0}, static_cast<std::uint64_t>(at));
      }
    }
  }
  std::unique_ptr<nn::CausalLm> model;
  std::unique_ptr<nn::AdamW> optimizer;
};

// Elements of a part, from the whole tensor.
bool is_part_of(const CheckpointTensor& part, const Tensor& whole) {
  const std::int64_t element = byte_size(whole.dtype()), width = whole.numel() / whole.size(0),
                     columns = part.columns.length > 0 ? part.columns.length : width;
  for (std::int64_t row = 0; row < part.slice.length; ++row)
    if (std::memcmp(static_cast<const std::byte*>(part.data.raw_data()) + row * columns * element,
                    static_cast<const std::byte*>(whole.raw_data()) +
                        ((part.slice.start + row) * width + part.columns.start) * element,
                    static_cast<std::size_t>(columns * element)) != 0)
      return false;
  return true;
}

TEST(SlicedCheckpoint, AnyMeshLoadsAnyOtherBitForBit) {
  const SlicedState whole({}, 0);
  whole.fill();
  std::map<std::string, Tensor> expected;
  for (const CheckpointTensor& tensor : whole.tensors()) expected[tensor.name] = tensor.data;
  const std::vector<SliceMesh> meshes = {{1, 1}, {2, 1}, {4, 1}, {1, 3}, {2, 3}, {4, 5}};
  for (const SliceMesh& saved : meshes) {
    const TempDir folder;
    const auto errors = on_ranks(saved.ranks(), [&](distributed::ProcessGroup& group) {
      const SlicedState state(saved, group.rank());
      state.fill();
      (void)save_checkpoint(folder.path(), {.step = 3}, state.tensors(), &group);
    });
    for (const std::string& error : errors) ASSERT_EQ(error, "");
    CheckpointReader reader(folder / "step-3");
    EXPECT_TRUE(verify_checkpoint(folder / "step-3").ok());
    for (const auto& [name, values] : expected) {
      ASSERT_EQ(reader.at(name).shape, values.shape()) << name;
      const Tensor read = Tensor::empty(values.shape(), values.dtype());
      reader.read(name, read);
      EXPECT_EQ(std::memcmp(read.raw_data(), values.raw_data(), values.nbytes()), 0)
          << name << ", saved by tensor " << saved.tensor << " x shard " << saved.shard;
    }
    for (const SliceMesh& loaded : meshes)
      for (int rank = 0; rank < loaded.ranks(); ++rank) {
        const SlicedState part(loaded, rank);
        restore_training_tensors(reader, *part.model, *part.optimizer);
        for (const CheckpointTensor& tensor : part.tensors())
          EXPECT_TRUE(is_part_of(tensor, expected.at(tensor.name)))
              << tensor.name << ", saved by tensor " << saved.tensor << " x shard " << saved.shard << ", rank " << rank
              << " of tensor " << loaded.tensor << " x shard " << loaded.shard;
      }
  }
}

// Columns alone need the newer format.
TEST(SlicedCheckpoint, OnlyFilesWithPartsOfColumnsHaveTheNewerFormat) {
  const Tensor half = Tensor::zeros({3, 2}, DType::f32);
  const auto text_of = [&](bool in_columns) {
    const TempDir folder;
    std::vector<CheckpointTensor> tensors = {CheckpointTensor::whole("a", Tensor::zeros({3, 4}, DType::f32))};
    if (in_columns) {
      tensors[0] = {"a", {3, 4}, {0, 3}, half, {0, 2}};
      const auto errors = on_ranks(2, [&](distributed::ProcessGroup& group) {
        std::vector<CheckpointTensor> own = tensors;
        own[0].columns.start = 2 * group.rank();
        (void)save_checkpoint(folder.path(), {.step = 1}, own, &group);
      });
      for (const std::string& error : errors) EXPECT_EQ(error, "");
    } else {
      (void)save_checkpoint(folder.path(), {.step = 1}, tensors);
    }
    return testing::read_file(folder / "step-1" / std::string(Manifest::kFileName));
  };
  EXPECT_NE(text_of(false).find("\"format_version\": 1,"), std::string::npos);
  EXPECT_NE(text_of(true).find("\"format_version\": 2,"), std::string::npos);
}

TEST(SlicedCheckpoint, MissingAndDoubleColumnsAreRefused) {
  const Tensor part = Tensor::zeros({3, 2}, DType::f32);
  const auto error_of = [&](std::vector<ShardSlice> columns) {
    const TempDir folder;
    const auto errors = on_ranks(static_cast<int>(columns.size()), [&](distributed::ProcessGroup& group) {
      const std::vector<CheckpointTensor> own = {
          {"a", {3, 4}, {0, 3}, part, columns[static_cast<std::size_t>(group.rank())]}};
      (void)save_checkpoint(folder.path(), {.step = 1}, own, &group);
    });
    return errors.front();
  };
  EXPECT_EQ(error_of({{0, 2}, {2, 2}}), "");
  EXPECT_NE(error_of({{0, 2}, {1, 2}}).find("do not continue at column 2 of 4"), std::string::npos);
  EXPECT_NE(error_of({{0, 2}}).find("stored up to column 2 alone"), std::string::npos);
}

}  // namespace
}  // namespace quench
