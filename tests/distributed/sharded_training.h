#pragma once
// Runs of `quench train` in several processes, and their records.

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "core/safetensors/safetensors_folder.h"
#include "tests/distributed/ranks.h"

namespace quench {

namespace fs = std::filesystem;
using testing::ChildResult;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

// A run by several processes must leave what the run by one leaves: losses to this much, relative.
inline constexpr double kSameLoss = 1e-6;

class ShardedTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * 37 % 101) + " of the text\n";
    write_file(folder_ / "text.txt", text);
    // No number of processes but 1 divides the vocabulary; the norms of queries and keys have two rows.
    write_config(R"("model_type": "qwen3", "vocab_size": 509, "hidden_size": 24, "intermediate_size": 37,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2)");
  }

  void write_config(const std::string& model) {
    write_file(folder_ / "run.json", R"({"model": {)" + model + R"(, "max_position_embeddings": 64},
      "data": {"train": [")" + (folder_ / "text.txt").string() +
                                         R"("], "tokenizer": "bytes", "seq_len": 16},
      "training": {"steps": 8, "micro_batch_size": 1, "global_batch_size": 12, "dtype": "f32"},
      "lr_schedule": {"decay_steps": 100},
      "checkpoint": {"interval": 4, "keep_latest": 0},
      "metrics": {"log_every": 1}})");
  }

  // `quench train` in that many processes; the run's folder is `name`.
  std::vector<ChildResult> start(int ranks, const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> command = {testing::program_path(), "train", (folder_ / "run.json").string(),
                                        "--device=cpu", "--run.folder=" + (folder_ / name).string()};
    command.insert(command.end(), more.begin(), more.end());
    if (ranks == 1) {
      testing::Child alone(command, {"OMP_NUM_THREADS=1"});
      return {alone.wait()};
    }
    testing::Ranks all(ranks);
    for (int rank = 0; rank < ranks; ++rank) all.start(rank, command);
    return all.wait();
  }
  void train(int ranks, const std::string& name, const std::vector<std::string>& more = {}) {
    int rank = 0;
    for (const ChildResult& result : start(ranks, name, more))
      ASSERT_EQ(result.status, 0) << name << ", process " << rank++ << " of " << ranks << ": " << result.output;
  }

  // step -> record
  [[nodiscard]] std::map<std::int64_t, Json> records(const std::string& name) const {
    std::map<std::int64_t, Json> all;
    std::istringstream lines(read_file(folder_ / name / "metrics" / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      Json record = Json::parse(line);
      const std::int64_t step = record.at("step").as_int();
      all.emplace(step, std::move(record));
    }
    return all;
  }
  void expect_same_run(const std::string& name, const std::string& as) const {
    const auto got = records(name), wanted = records(as);
    ASSERT_FALSE(wanted.empty());
    ASSERT_EQ(got.size(), wanted.size()) << name;
    for (const auto& [step, record] : wanted) {
      const Json& other = got.at(step);
      EXPECT_EQ(other.at("tokens_seen").as_int(), record.at("tokens_seen").as_int()) << name << ", step " << step;
      for (const char* key : {"loss", "grad_norm"}) {
        const double value = record.at(key).as_double();
        EXPECT_NEAR(other.at(key).as_double(), value, kSameLoss * std::abs(value))
            << name << ", step " << step << ", " << key;
      }
    }
  }
  // The first loss is the same, later ones to `later`, relative.
  void expect_near_run(const std::string& name, const std::string& as, double later) const {
    const auto got = records(name), wanted = records(as);
    ASSERT_FALSE(wanted.empty());
    ASSERT_EQ(got.size(), wanted.size()) << name;
    for (const auto& [step, record] : wanted) {
      const double loss = record.at("loss").as_double();
      EXPECT_NEAR(got.at(step).at("loss").as_double(), loss, (step == 1 ? std::min(kSameLoss, later) : later) * loss)
          << name << ", step " << step;
    }
  }
  // The tensors of two model folders are the same, bit for bit.
  void expect_same_export(const fs::path& got, const fs::path& wanted) const {
    const SafetensorsFolder a(got), b(wanted);
    ASSERT_EQ(a.names(), b.names());
    for (const std::string& name : b.names()) {
      const auto x = a.at(name), y = b.at(name);
      ASSERT_EQ(x.entry->shape, y.entry->shape) << name;
      std::vector<std::byte> left(x.entry->nbytes()), right(y.entry->nbytes());
      x.read(left);
      y.read(right);
      EXPECT_EQ(left, right) << got.string() << ": " << name;
    }
  }

  TempDir folder_;
};

}  // namespace quench
