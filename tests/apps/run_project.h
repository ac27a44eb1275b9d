#pragma once
// A user's working folder: a text, a tokenizer of its own, token shards, the config of a tiny run.

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench::testing {

// Twelve records of 40 token ids below 153, as calibration data.
inline void write_id_records(const std::filesystem::path& file) {
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    std::string ids;
    for (int k = 0; k < 40; ++k) ids += fmt::format("{}{}", k == 0 ? "" : ", ", (7 * k * k + 11 * i) % 150 + 3);
    lines += fmt::format("{{\"input_ids\": [{}]}}\n", ids);
  }
  write_file(file, lines);
}

class RunProject : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<std::string> animals = {"a dog", "the cat", "my friend", "the old king"};
    const std::vector<std::string> things = {"the river", "a house", "the morning", "an apple"};
    std::mt19937 random(3);
    std::string text;
    for (int i = 1; i <= 300; ++i)
      text += animals[random() % 4] + " sees " + things[random() % 4] + (i % 5 == 0 ? ".\n\n" : ".\n");
    write_file(work() / "corpus.txt", text);
    write_file(work() / "held_out.txt", text.substr(0, 500));
    expect_ok({"tokenize", "train", "--input", "corpus.txt", "--vocab-size", "280", "--output", "tokenizer"});
    expect_ok({"tokenize", "--tokenizer", "tokenizer", "--input", "corpus.txt", "--split", "blank_line", "--output",
               "shards", "--validation", "0.1"});
    write_config(R"({"preset": "tiny", "vocab_size": 280})");
  }

  // The run "run" of `steps` steps, with this section model and these further members of the section data.
  void write_config(const std::string& model, const std::string& data = R"(, "tokenizer": "tokenizer")") {
    write_file(work() / "run.json", R"({"model": )" + model + R"(, "data": {"train": ["shards/train-*.bin"],
      "validation": ["shards/val.bin"], "seq_len": 32)" +
                                        data +
                                        R"(},
      "training": {"steps": 30, "micro_batch_size": 4, "dtype": "f32"},
      "optimizer": {"lr": 1e-2},
      "checkpoint": {"interval": 10},
      "metrics": {"log_every": 5, "tensorboard": false},
      "evaluation": {"interval": 15, "steps": 2},
      "run": {"folder": "run"}})");
  }

  // The folder in which commands run, and one that stands for another machine.
  [[nodiscard]] std::filesystem::path work() const { return made(folder_ / "work"); }
  [[nodiscard]] std::filesystem::path elsewhere() const { return made(folder_ / "elsewhere"); }

  Outcome run(const std::vector<std::string>& arguments) const { return run_program(work(), arguments); }
  Outcome run_elsewhere(const std::vector<std::string>& arguments) const { return run_program(elsewhere(), arguments); }
  void expect_ok(const std::vector<std::string>& arguments) const {
    const Outcome outcome = run(arguments);
    ASSERT_EQ(outcome.status, 0) << arguments[0] << ": " << outcome.errors << outcome.output;
  }

  // A published model folder "base" with the project's tokenizer and several end ids, then the config of a run on it.
  void make_base() {
    expect_ok({"train", "run.json", "--run.folder=first", "--export.format=hf", "--export.folder=base"});
    std::filesystem::remove_all(work() / "first");
    Json config = read_json("base/config.json");
    config.set("eos_token_id", Json::Array{278, 12});
    write_file(work() / "base" / "config.json", config.dump());
    write_file(work() / "base" / "generation_config.json",
               R"({"bos_token_id": 277, "eos_token_id": [278, 12, 13], "temperature": 0.6, "do_sample": true})");
    write_file(work() / "base" / "LICENSE", "free");
    write_file(work() / "base" / "chat_template.jinja", "{{ messages }}");
    write_config(R"({"path": "base"})", "");
  }

  [[nodiscard]] Json read_json(const std::string& name) const { return Json::parse_file(work() / name); }
  // Tokens of a greedy continuation, or what went wrong.
  [[nodiscard]] static std::string continuation(const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.status == 0 ? Json::parse(outcome.output).at("tokens").dump() : outcome.errors;
  }
  [[nodiscard]] static std::vector<std::string> generate(const std::string& model) {
    return {"generate", "--model", model, "--prompt", "the cat", "--max-new-tokens", "40", "--json"};
  }

 private:
  static std::filesystem::path made(const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    return folder;
  }

  TempDir folder_;
};

}  // namespace quench::testing
