#pragma once
// A tiny run with section grpo, whose model is rewarded for digits.

#include <sstream>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "tests/testing.h"
#include "train/check/load.h"
#include "train/run/trainer.h"

namespace quench::testing {

// A tiny model of bytes that is rewarded for digits.
class GrpoTinyRun {
 public:
  GrpoTinyRun() {
    std::string records;
    for (int i = 0; i < 12; ++i)
      records += R"({"prompt": "q)" + std::to_string(i) + R"(", "answer": ")" + std::to_string(i) + "\"}\n";
    write_file(folder_ / "prompts.jsonl", records);
  }

  [[nodiscard]] RunConfig config(const std::string& name, std::vector<std::string> overrides = {}) const {
    const std::string document = R"({
      "model": {"model_type": "llama", "vocab_size": 259, "hidden_size": 32, "intermediate_size": 48,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                "max_position_embeddings": 64, "tie_word_embeddings": false},
      "data": {"train": [")" + (folder_ / "prompts.jsonl").string() +
                                 R"("], "tokenizer": "bytes", "seq_len": 32},
      "grpo": {"num_generations": 8, "max_completion_length": 6, "rewards": ["regex"], "reward_pattern": "[0-9]"},
      "training": {"steps": 4, "micro_batch_size": 2, "global_batch_size": 4, "dtype": "f32", "threads": 1},
      "optimizer": {"lr": 1e-2},
      "checkpoint": {"interval": 2, "keep_latest": 0},
      "metrics": {"log_every": 1, "tensorboard": false, "log_level": "off", "progress": "off"}})";
    overrides.insert(overrides.begin(), "--run.folder=" + (folder_ / name).string());
    return parse_run_config(document, (folder_ / (name + ".json")).string(), overrides);
  }
  void run(const RunConfig& config, Device device = {}) const {
    ::testing::internal::CaptureStdout();
    try {
      (void)Trainer(config, device).run();
    } catch (...) {
      (void)::testing::internal::GetCapturedStdout();
      throw;
    }
    (void)::testing::internal::GetCapturedStdout();
  }
  [[nodiscard]] std::vector<Json> steps(const std::string& name) const {
    std::vector<Json> all;
    std::istringstream lines(read_file(folder_ / name / "metrics/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
    return all;
  }
  // A metric of every step.
  [[nodiscard]] std::vector<double> values(const std::string& name, const char* metric) const {
    std::vector<double> all;
    for (const Json& step : steps(name)) all.push_back(step.at("objective").at(metric).as_double());
    return all;
  }
  // Loss and metrics of steps, exactly as written.
  [[nodiscard]] std::vector<std::string> figures(const std::string& name) const {
    std::vector<std::string> all;
    for (const Json& step : steps(name)) all.push_back(step.at("loss").dump() + step.at("objective").dump());
    return all;
  }
  [[nodiscard]] std::filesystem::path checkpoint(const std::string& name, int step) const {
    return folder_ / name / "checkpoints" / ("step-" + std::to_string(step));
  }
  [[nodiscard]] const TempDir& folder() const { return folder_; }

 private:
  TempDir folder_;
};

inline double mean_of_range(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += values[i];
  return sum / static_cast<double>(end - begin);
}

}  // namespace quench::testing
