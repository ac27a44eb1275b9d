#pragma once
// A tiny run on text that continues prompts while it trains.

#include <sstream>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "tests/testing.h"
#include "train/check/load.h"
#include "train/run/trainer.h"

namespace quench::testing {

// The tokenizer is the bytes. Prompts are continued at steps 4, 8 and 12, the last.
class SampleRun {
 public:
  SampleRun() {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "the cat sees the dog. ";
    write_file(folder_ / "train.txt", text);
  }

  [[nodiscard]] RunConfig config(const std::string& name, std::vector<std::string> overrides = {}) const {
    const std::string document = R"({
      "model": {"model_type": "llama", "vocab_size": 259, "hidden_size": 32, "intermediate_size": 48,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                "max_position_embeddings": 32, "tie_word_embeddings": true},
      "data": {"train": [")" + (folder_ / "train.txt").string() +
                                 R"("], "tokenizer": "bytes", "seq_len": 24},
      "training": {"steps": 12, "micro_batch_size": 2, "dtype": "f32"},
      "optimizer": {"lr": 1e-2},
      "checkpoint": {"interval": 4, "keep_latest": 0},
      "evaluation": {"interval": 4, "prompts": ["the cat ", "the d\u00f6g"], "sample_tokens": 6},
      "metrics": {"log_every": 1, "tensorboard": false, "log_level": "off", "progress": "off"}})";
    overrides.insert(overrides.begin(), "--run.folder=" + (folder_ / name).string());
    return parse_run_config(document, (folder_ / (name + ".json")).string(), overrides);
  }
  void run(const RunConfig& run_config, Device device = {}) const {
    ::testing::internal::CaptureStdout();
    try {
      (void)Trainer(run_config, device).run();
    } catch (...) {
      (void)::testing::internal::GetCapturedStdout();
      throw;
    }
    (void)::testing::internal::GetCapturedStdout();
  }
  [[nodiscard]] std::vector<Json> samples(const std::string& name) const {
    std::vector<Json> records;
    std::istringstream lines(read_file(folder_ / name / "metrics/samples.jsonl"));
    for (std::string line; std::getline(lines, line);) records.push_back(Json::parse(line));
    return records;
  }
  // Step, prompt and text of every record.
  [[nodiscard]] std::vector<std::string> texts(const std::string& name) const {
    std::vector<std::string> result;
    for (const Json& record : samples(name))
      result.push_back(record.at("step").dump() + " " + record.at("prompt").as_string() +
                       record.at("text").as_string());
    return result;
  }
  [[nodiscard]] std::string losses(const std::string& name) const {
    std::string result;
    std::istringstream lines(read_file(folder_ / name / "metrics/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) result += Json::parse(line).at("loss").dump() + " ";
    return result;
  }

  [[nodiscard]] const TempDir& folder() const { return folder_; }

 private:
  TempDir folder_;
};

}  // namespace quench::testing
