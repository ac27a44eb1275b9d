#include "train/checkpoint/checkpoint_reader.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/safetensors/safetensors.h"
#include "core/system/file.h"
#include "tests/fault/checkpoint_contents.h"
#include "tests/fault/process.h"
#include "tests/testing.h"
#include "train/checkpoint/checkpoint_save.h"
#include "train/checkpoint/data_file_part.h"

namespace quench {
namespace {

using testing::MemoryDir;
using testing::StepTensors;

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

// A tensor with bytes 0, 1, 2, ...
struct Owned {
  std::vector<std::uint8_t> bytes;
  CheckpointTensor tensor;
  Owned(const std::string& name, const Shape& shape, DType dtype)
      : bytes(row_bytes(shape, dtype, shape.rank() == 0 ? 1 : shape[0])) {
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
    tensor = CheckpointTensor::whole(name, Tensor::from_host(bytes.data(), shape, dtype));
  }
  Owned(const Owned&) = delete;
};

TEST(CheckpointReader, ReturnsEveryDtypeAndShape) {
  const MemoryDir dir;
  std::vector<std::unique_ptr<Owned>> owned;
  std::vector<CheckpointTensor> tensors;
  for (int dtype = 0; dtype <= static_cast<int>(DType::boolean); ++dtype)
    for (const Shape& shape : {Shape{3, 4}, Shape{2}, Shape{0, 2}, Shape{2, 0}, Shape{1, 2, 3, 2}}) {
      const auto type = static_cast<DType>(dtype);
      const std::string name = fmt::format("{}{}", to_string(type), shape.to_string());
      owned.push_back(std::make_unique<Owned>(name, shape, type));
      tensors.push_back(owned.back()->tensor);
    }
  owned.push_back(std::make_unique<Owned>("scalar", Shape{}, DType::f64));
  tensors.push_back(owned.back()->tensor);
  CheckpointState state;
  state.step = 5;
  const auto saved = save_checkpoint(dir.path(), state, tensors);

  CheckpointReader reader(saved.path);
  EXPECT_EQ(reader.manifest().tensors.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::vector<std::uint8_t> bytes(owned[i]->bytes.size(), 0xAA);
    const Tensor& source = tensors[i].data;
    reader.read(tensors[i].name, Tensor::from_host(bytes.data(), source.shape(), source.dtype()));
    EXPECT_EQ(bytes, owned[i]->bytes) << tensors[i].name;
  }
  EXPECT_TRUE(verify_checkpoint(saved.path).ok());
}

TEST(CheckpointReader, DataFileIsAPlainSafetensorsFile) {
  const MemoryDir dir;
  StepTensors tensors;
  const auto saved = save_checkpoint(dir.path(), tensors.state(3), tensors.at(3));
  const SafetensorsReader file(saved.path / "rank-00000.safetensors");
  EXPECT_EQ(file.header().entries.size(), tensors.at(3).size());
  EXPECT_EQ(file.at("layers.0.weight").shape, (Shape{7, 5}));
  EXPECT_EQ(file.at("layers.0.norm").dtype, DType::bf16);
  EXPECT_EQ(file.header().metadata.at("quench.step"), "3");
  EXPECT_EQ(file.header().metadata.at("format"), "pt");
  std::vector<std::byte> stored(140);
  file.read(file.at("layers.0.weight"), stored);
  EXPECT_EQ(std::memcmp(stored.data(), tensors.at(3)[0].data.raw_data(), 140), 0);
}

// Splits `rows` over ranks as evenly as FSDP does: ceil(rows / world) each, the last ones less or nothing.
ShardSlice share(std::int64_t rows, int rank, int world) {
  const std::int64_t chunk = (rows + world - 1) / world;
  const std::int64_t start = std::min(rows, chunk * rank);
  return {start, std::min(chunk, rows - start)};
}

CheckpointTensor part_of(const Owned& owned, int rank, int world) {
  const Tensor& whole = owned.tensor.data;
  if (whole.rank() == 0) return {owned.tensor.name, {}, {rank == 0 ? 0 : 1, rank == 0 ? 1 : 0}, whole};
  const ShardSlice slice = share(whole.size(0), rank, world);
  return {owned.tensor.name, whole.shape(), slice, whole.narrow(0, slice.start, slice.length)};
}

class CheckpointResharding : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(CheckpointResharding, AnyWorldReadsWhatAnyWorldWrote) {
  const auto [writers, readers] = GetParam();
  const MemoryDir dir;
  const Owned vocabulary("embed", {509, 6}, DType::bf16), one_row("one", {1, 9}, DType::f32),
      vector("v", {7}, DType::u8), empty("none", {0, 3}, DType::f32), packed("q", {5, 4}, DType::i4);
  Manifest manifest;
  manifest.save_uuid = "u";
  manifest.world_size = writers;
  manifest.state.step = 1;
  const auto folder = dir / "step-1";
  std::filesystem::create_directory(folder);
  for (int rank = 0; rank < writers; ++rank) {
    std::vector<CheckpointTensor> parts;
    for (const Owned* owned : {&vocabulary, &one_row, &vector, &empty, &packed})
      parts.push_back(part_of(*owned, rank, writers));
    DataFilePlan plan = plan_data_file({"u", 1, rank, writers}, parts);
    write_data_file(folder, plan, parts);
    append_part(manifest, describe(plan, parts));
  }
  write_file_atomically(folder / "manifest.json", manifest.dump());
  EXPECT_TRUE(verify_checkpoint(folder).ok());

  for (int rank = 0; rank < readers; ++rank) {
    CheckpointReader reader(folder);
    for (const Owned* owned : {&vocabulary, &one_row, &vector, &empty, &packed}) {
      const Tensor expected = part_of(*owned, rank, readers).data;
      std::vector<std::uint8_t> bytes(expected.nbytes(), 0xAA);
      const Tensor target = Tensor::from_host(bytes.data(), expected.shape(), expected.dtype());
      for (int pass = 0; pass < 2; ++pass) {  // the second pass reads verified shards directly
        reader.read(owned->tensor.name, target, share(owned->tensor.data.size(0), rank, readers));
        EXPECT_TRUE(bytes.empty() || std::memcmp(bytes.data(), expected.raw_data(), bytes.size()) == 0)
            << owned->tensor.name << " rank " << rank;
        std::fill(bytes.begin(), bytes.end(), std::uint8_t{0xAA});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, CheckpointResharding,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Values(1, 2, 3, 4)));

TEST(CheckpointReader, RanksMustAgreeOnATensor) {
  Owned a("w", {4, 2}, DType::f32), b("w", {4, 3}, DType::f32);
  Manifest manifest;
  manifest.world_size = 2;
  const std::vector<CheckpointTensor> first{part_of(a, 0, 2)}, second{part_of(b, 1, 2)};
  append_part(manifest, describe(plan_data_file({"u", 1, 0, 2}, first), first));
  EXPECT_EQ(error_of([&] {
              append_part(manifest, describe(plan_data_file({"u", 1, 1, 2}, second), second));
            }),
            "checkpoint tensor 'w' is f32[4, 3] on rank 1 and f32[4, 2] on an earlier rank");
}

TEST(CheckpointReader, WrongDestinationIsNamed) {
  const MemoryDir dir;
  StepTensors tensors;
  const auto saved = save_checkpoint(dir.path(), tensors.state(1), tensors.at(1));
  CheckpointReader reader(saved.path);
  std::vector<float> values(70);
  const auto into = [&](const Shape& shape, DType dtype) {
    return error_of([&] { reader.read("layers.0.weight", Tensor::from_host(values.data(), shape, dtype)); });
  };
  EXPECT_NE(into({5, 7}, DType::f32)
                .find("tensor 'layers.0.weight' is stored as f32[7, 5]; it cannot be read into f32[5, 7]"),
            std::string::npos);
  EXPECT_NE(into({7, 5}, DType::i32).find("cannot be read into i32[7, 5]"), std::string::npos);
  EXPECT_NE(error_of([&] { reader.read("x", Tensor()); }).find("has no tensor 'x'"), std::string::npos);
  const Tensor rows = Tensor::from_host(values.data(), {2, 5}, DType::f32);
  EXPECT_NE(error_of([&] {
              reader.read("layers.0.weight", rows, {6, 2});
            }).find("lie outside the 7 rows"),
            std::string::npos);
  EXPECT_NE(error_of([&] { reader.read("layers.0.weight", rows, {-1, 2}); }).find("outside"), std::string::npos);
  EXPECT_EQ(reader.find("x"), nullptr);
}

TEST(CheckpointReader, WrongTensorsAreRefusedBeforeAnythingIsWritten) {
  const MemoryDir dir;
  std::vector<float> values(12);
  const Tensor matrix = Tensor::from_host(values.data(), {3, 4}, DType::f32);
  const auto save = [&](std::vector<CheckpointTensor> tensors) {
    return error_of([&] { save_checkpoint(dir.path(), {}, tensors); });
  };
  EXPECT_NE(save({CheckpointTensor::whole("w", matrix.transpose(0, 1))}).find("'w'"), std::string::npos);
  EXPECT_NE(save({{"w", {3, 4}, {0, 3}, Tensor()}}).find("'w' has no data"), std::string::npos);
  EXPECT_NE(save({{"w", {5, 4}, {3, 3}, matrix}}).find("outside its 5 rows"), std::string::npos);
  EXPECT_NE(save({{"w", {5, 4}, {0, 2}, matrix}}).find("expected shape [2, 4]"), std::string::npos);
  EXPECT_NE(save({{"w", {5, 4}, {0, 3}, matrix}}).find("only 3 are stored"), std::string::npos);
  EXPECT_NE(save({CheckpointTensor::whole("w", matrix), CheckpointTensor::whole("w", matrix)}).find("\"w\""),
            std::string::npos);
  EXPECT_NE(save({CheckpointTensor::whole("", matrix)}), "(no error)");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(CheckpointReader, FilesOfDifferentSavesAreNotMixed) {
  const MemoryDir dir;
  StepTensors tensors;
  const auto a = save_checkpoint(dir.path(), tensors.state(1), tensors.at(1));
  const auto b = save_checkpoint(dir.path(), tensors.state(2), tensors.at(2));
  std::filesystem::copy_file(a.path / "rank-00000.safetensors", b.path / "rank-00000.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  const std::string error = error_of([&] { CheckpointReader reader(b.path); });
  EXPECT_NE(error.find("(step 1, rank 0), not to save"), std::string::npos) << error;
  EXPECT_NE(error.find("files of different checkpoints were mixed"), std::string::npos) << error;
  EXPECT_FALSE(verify_checkpoint(b.path).ok());

  std::filesystem::rename(a.path, dir / "step-3");
  EXPECT_NE(error_of([&] { CheckpointReader reader(dir / "step-3"); }).find("holds the checkpoint of step 1"),
            std::string::npos);
  std::filesystem::rename(dir / "step-3", dir / "best");  // a name without a step is the user's business
  EXPECT_EQ(CheckpointReader(dir / "best").state().step, 1);
}

TEST(CheckpointReader, SwappedRanksAreRecognised) {
  const MemoryDir dir;
  Owned weight("w", {4, 2}, DType::f32);
  Manifest manifest;
  manifest.save_uuid = "u";
  manifest.world_size = 2;
  manifest.state.step = 1;
  for (const int rank : {0, 1}) {
    const std::vector<CheckpointTensor> parts{part_of(weight, rank, 2)};
    DataFilePlan plan = plan_data_file({"u", 1, rank, 2}, parts);
    write_data_file(dir.path(), plan, parts);
    append_part(manifest, describe(plan, parts));
  }
  write_file_atomically(dir / "manifest.json", manifest.dump());
  EXPECT_TRUE(verify_checkpoint(dir.path()).ok());
  std::filesystem::rename(dir / data_file_name(0), dir / "x");
  std::filesystem::rename(dir / data_file_name(1), dir / data_file_name(0));
  std::filesystem::rename(dir / "x", dir / data_file_name(1));
  const VerifyReport report = verify_checkpoint(dir.path());
  ASSERT_EQ(report.faults.size(), 2u);
  EXPECT_NE(report.faults[0].find("save u (step 1, rank 1), not to save u (step 1, rank 0)"), std::string::npos)
      << report.faults[0];
}

TEST(CheckpointReader, MissingFilesAreNamed) {
  const MemoryDir dir;
  StepTensors tensors;
  const auto saved = save_checkpoint(dir.path(), tensors.state(1), tensors.at(1));
  std::filesystem::remove(saved.path / "rank-00000.safetensors");
  EXPECT_NE(
      error_of([&] { CheckpointReader reader(saved.path); }).find("rank-00000.safetensors, which the manifest lists"),
      std::string::npos);
  std::filesystem::create_directory(saved.path / "rank-00000.safetensors");
  EXPECT_NE(error_of([&] { CheckpointReader reader(saved.path); }).find("is not a regular file"), std::string::npos);
  std::filesystem::remove(saved.path / "manifest.json");
  EXPECT_NE(error_of([&] { CheckpointReader reader(saved.path); }).find("manifest.json"), std::string::npos);
  EXPECT_THROW((void)verify_checkpoint(dir / "absent"), Error);
}

TEST(CheckpointReader, PartOfADamagedShardIsNotReturned) {
  const MemoryDir dir;
  StepTensors tensors;
  const auto saved = save_checkpoint(dir.path(), tensors.state(1), tensors.at(1));
  const auto path = saved.path / "rank-00000.safetensors";
  std::string bytes = testing::read_file(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);  // the last row of 'bulk'
  testing::write_file(path, bytes);
  std::vector<std::uint8_t> rows(16);
  const Tensor target = Tensor::from_host(rows.data(), {16}, DType::u8);
  CheckpointReader reader(saved.path);
  const std::string error = error_of([&] { reader.read("bulk", target, {0, 16}); });
  EXPECT_NE(error.find("tensor 'bulk' (rows 0 to 4096 of 4096) is damaged"), std::string::npos) << error;
  EXPECT_NE(error.find("rank-00000.safetensors"), std::string::npos) << error;
  CheckpointReader trusting(saved.path, Verify::none);
  EXPECT_NO_THROW(trusting.read("bulk", target, {0, 16}));
}

}  // namespace
}  // namespace quench
