#include <gtest/gtest.h>

#include <random>

#include "tests/fault/checkpoint_contents.h"
#include "tests/fault/process.h"
#include "train/checkpoint/checkpoint_save.h"

namespace quench {
namespace {

using testing::MemoryDir;
using testing::StepTensors;

class CheckpointCorruption : public ::testing::Test {
 protected:
  CheckpointCorruption() {
    path_ = save_checkpoint(dir_.path(), tensors_.state(9), tensors_.at(9)).path;
    for (const char* name : {"manifest.json", "rank-00000.safetensors"})
      files_.emplace_back(path_ / name, testing::read_file(path_ / name));
  }

  // Replaces a file by `bytes`, expects that verification and loading both report it, and restores it.
  void expect_detected(std::size_t file, const std::string& bytes, const std::string& what) {
    const auto& [path, original] = files_[file];
    ASSERT_NE(bytes, original);
    testing::write_file(path, bytes);
    const VerifyReport report = verify_checkpoint(path_);
    ASSERT_FALSE(report.ok()) << path << ": " << what;
    EXPECT_NE(report.faults[0].find(path.filename().string()), std::string::npos) << report.faults[0];
    EXPECT_THROW(load(), Error) << path << ": " << what;
    testing::write_file(path, original);
  }

  void load() {
    CheckpointReader reader(path_);
    EXPECT_EQ(tensors_.difference(reader), "");
  }

  MemoryDir dir_;
  StepTensors tensors_{9000};
  std::filesystem::path path_;
  std::vector<std::pair<std::filesystem::path, std::string>> files_;
};

std::string flipped(std::string bytes, std::size_t bit) {
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  return bytes;
}

TEST_F(CheckpointCorruption, UndamagedLoads) {
  EXPECT_TRUE(verify_checkpoint(path_).ok());
  load();
}

TEST_F(CheckpointCorruption, OneFlippedBitInEachByteOfEachFile) {
  std::mt19937 random(1);
  for (std::size_t file = 0; file < files_.size(); ++file)
    for (std::size_t byte = 0; byte < files_[file].second.size(); ++byte)
      expect_detected(file, flipped(files_[file].second, byte * 8 + random() % 8), fmt::format("byte {}", byte));
}

TEST_F(CheckpointCorruption, ThousandRandomDamages) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 1000; ++trial) {
    const std::size_t file = random() % files_.size();
    std::string bytes = files_[file].second;
    switch (trial % 4) {
      case 0: bytes = flipped(bytes, random() % (bytes.size() * 8)); break;
      case 1: bytes.resize(random() % bytes.size()); break;
      case 2: bytes.append(1 + random() % 3, static_cast<char>(random())); break;
      case 3: {  // a page that never reached the disk
        const std::size_t page = random() % ((bytes.size() + 4095) / 4096) * 4096;
        std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(page),
                  bytes.begin() + static_cast<std::ptrdiff_t>(std::min(page + 4096, bytes.size())), '\0');
        break;
      }
    }
    expect_detected(file, bytes, fmt::format("trial {}", trial));
  }
}

TEST_F(CheckpointCorruption, DamagedTensorIsNamed) {
  const auto& [path, original] = files_[1];
  const Manifest manifest = read_manifest(path_);
  for (const TensorRecord& tensor : manifest.tensors) {
    if (tensor.shards[0].size == 0) continue;
    testing::write_file(path, flipped(original, (tensor.shards[0].offset + tensor.shards[0].size / 2) * 8));
    const VerifyReport report = verify_checkpoint(path_);
    ASSERT_EQ(report.faults.size(), 1u);
    EXPECT_NE(report.faults[0].find("'" + tensor.name + "'"), std::string::npos) << report.faults[0];
    EXPECT_NE(report.faults[0].find(path.string()), std::string::npos) << report.faults[0];
  }
  testing::write_file(path, original);
}

}  // namespace
}  // namespace quench
