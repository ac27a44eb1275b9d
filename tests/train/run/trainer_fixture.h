#pragma once
// A tiny run on synthetic tokens, for tests of the trainer.

#include <string>
#include <vector>

#include "core/json/json.h"
#include "data/formats/shard_writer.h"
#include "tests/testing.h"
#include "train/check/load.h"
#include "train/run/trainer.h"

namespace quench::testing {

// A temporary folder with a token shard and the config of a run in it.
class TinyRun {
 public:
  TinyRun() {
    ShardWriter writer(temp_ / "train.bin", {.vocab_size = 64, .eos_id = 0});
    std::uint32_t state = 1;
    for (int document = 0; document < 120; ++document) {
      std::vector<std::int32_t> tokens;
      const int length = 5 + document * 7 % 60;
      for (int i = 0; i < length; ++i) {
        state = state * 1664525u + 1013904223u;
        // Skewed and locally predictable, so that there is something to learn.
        const std::int32_t previous = tokens.empty() ? 1 : tokens.back();
        tokens.push_back((state >> 28) < 6 ? static_cast<std::int32_t>(state >> 26) : (previous * 5 + 3) % 64);
      }
      tokens.push_back(0);
      writer.append(tokens);
      writer.end_document();
    }
    writer.finish();
  }

  [[nodiscard]] RunConfig config(const std::string& name, const std::vector<std::string>& overrides = {}) const {
    const std::string text = R"({
      "model": {"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
                "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                "max_position_embeddings": 64, "tie_word_embeddings": true},
      "data": {"train": [")" +
                             (temp_ / "train.bin").string() + R"("], "seq_len": 24},
      "training": {"steps": 40, "micro_batch_size": 2, "global_batch_size": 4, "dtype": "f32"},
      "optimizer": {"lr": 1e-2},
      "lr_schedule": {"name": "cosine"},
      "checkpoint": {"interval": 10, "keep_latest": 0},
      "metrics": {"log_every": 1, "tensorboard": false, "log_level": "warn", "progress": "off"}})";
    std::vector<std::string> all{"--run.folder=" + (temp_ / name).string()};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return parse_run_config(text, (temp_ / (name + ".json")).string(), all);
  }

  TrainResult run(const RunConfig& run_config, Device device = {}) const {
    ::testing::internal::CaptureStdout();
    try {
      TrainResult result = Trainer(run_config, device).run();
      (void)::testing::internal::GetCapturedStdout();
      return result;
    } catch (...) {
      (void)::testing::internal::GetCapturedStdout();
      throw;
    }
  }

  // Text of the loss of every logged step, exactly as written.
  [[nodiscard]] std::vector<std::string> losses(const std::string& name) const {
    std::vector<std::string> result;
    std::istringstream lines(read_file(temp_ / name / "metrics" / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json record = Json::parse(line);
      result.push_back(record.at("step").dump() + ":" + record.at("loss").dump());
    }
    return result;
  }

  [[nodiscard]] std::filesystem::path folder(const std::string& name) const { return temp_ / name; }
  [[nodiscard]] std::filesystem::path checkpoint(const std::string& name, int step) const {
    return temp_ / name / "checkpoints" / ("step-" + std::to_string(step));
  }

 private:
  TempDir temp_;
};

}  // namespace quench::testing
