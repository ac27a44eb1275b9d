// Data sets in Parquet and Arrow files (tests/data/files/make_tables.py), through the program.

#include <gmock/gmock.h>

#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_file;
using testing::run_program;
using testing::TempDir;
using testing::write_file;

namespace fs = std::filesystem;

class ParquetData : public ::testing::Test {
 protected:
  ParquetData() {
    const fs::path tables = testing::source_dir() / "tests/data/files/tables";
    fs::create_directories(folder_ / "hub/data");
    fs::copy_file(tables / "chats.parquet", folder_ / "hub/data/train-00000-of-00001.parquet");
    fs::copy_file(tables / "chats-zstd.parquet", folder_ / "hub/data/test-00000-of-00001.parquet");
    fs::create_directories(folder_ / "lines");
    fs::copy_file(tables / "chats.jsonl", folder_ / "lines/train.jsonl");
    fs::copy_file(tables / "chats.jsonl", folder_ / "lines/test.jsonl");
    fs::copy_file(tables / "questions.parquet", folder_ / "questions.parquet");
    write_file(folder_ / "questions.jsonl",
               "{\"prompt\": \"Is 0 even?\", \"completion\": \"yes\"}\n{\"prompt\": \"Is 1 even?\", \"completion\": "
               "\"no\"}\n{\"prompt\": \"Is 2 even?\", \"completion\": \"yes\"}\n{\"prompt\": \"Is 3 even?\", "
               "\"completion\": \"no\"}\n");
    // Tools are written, as the chats call them.
    write_file(folder_ / "chat.jinja",
               "{% for m in messages %}<|{{ m.role }}|>{{ m.name }}{{ m.content }}{% for c in m.tool_calls %}"
               "{{ c.function.name }}({{ c.function.arguments }}){% endfor %}<|end|>{% endfor %}");
    write_file(folder_ / "run.json", R"({
      "model": {"model_type": "qwen2", "vocab_size": 300, "hidden_size": 16, "intermediate_size": 24,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                "max_position_embeddings": 64, "tie_word_embeddings": true},
      "data": {"tokenizer": "bytes", "seq_len": 16},
      "training": {"steps": 3, "micro_batch_size": 1, "dtype": "f32"},
      "evaluation": {"interval": 2, "steps": 1},
      "metrics": {"log_every": 1}})");
  }

  Outcome run(const std::vector<std::string>& arguments) const { return run_program(folder_.path(), arguments); }

  [[nodiscard]] std::string shard_of(const std::string& input, const std::vector<std::string>& options) const {
    std::vector<std::string> arguments = {"tokenize", "--tokenizer", "bytes", "--input",
                                          input,      "--output",    "out",   "--overwrite"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return read_file(folder_ / "out/train-00000.bin");
  }

  // The losses that a run prints.
  [[nodiscard]] std::string losses(const std::string& name, const std::vector<std::string>& options) const {
    std::vector<std::string> arguments = {"train", "run.json", "--run.folder=" + name};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    std::string found;
    const std::string metrics = read_file(folder_ / name / "metrics/metrics.jsonl");
    for (std::size_t at = metrics.find("\"loss\":"); at != std::string::npos; at = metrics.find("\"loss\":", at + 1))
      found += metrics.substr(at, metrics.find(',', at) - at) + " ";
    return found;
  }

  TempDir folder_;
};

TEST_F(ParquetData, AChatDataSetHasTheIdsOfItsJsonLines) {
  const std::vector<std::string> template_option = {"--chat-template", "chat.jinja"};
  const std::string expected = shard_of("lines/train.jsonl", template_option);
  EXPECT_EQ(shard_of("hub", template_option), expected);
  EXPECT_EQ(shard_of("hub/data/train-*.parquet", template_option), expected);
  const std::vector<std::string> columns = {"--columns", "prompt=question,completion=meta.answer"};
  EXPECT_EQ(shard_of("questions.parquet", columns), shard_of("questions.jsonl", {}));
}

TEST_F(ParquetData, APartWithoutRowsIsNoFaultAndADamagedOneIs) {
  const fs::path tables = testing::source_dir() / "tests/data/files/tables";
  fs::create_directories(folder_ / "parts");
  fs::copy_file(tables / "empty.parquet", folder_ / "parts/train-00000-of-00002.parquet");
  const std::vector<std::string> arguments = {"tokenize", "--tokenizer", "bytes", "--input", "parts", "--output", "a"};
  Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.errors, HasSubstr("train-00000-of-00002.parquet: no record that can be used"));
  fs::copy_file(tables / "dictionary-heap.parquet", folder_ / "parts/train-00001-of-00002.parquet");
  outcome = run(arguments);
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.errors, HasSubstr("train-00001-of-00002.parquet, row 1: column \"text\": dictionary index 200 is "
                                        "out of bounds: the dictionary has 3 values"));
  fs::copy_file(tables / "questions.parquet", folder_ / "parts/train-00001-of-00002.parquet",
                fs::copy_options::overwrite_existing);
  outcome = run(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("4 documents"));
}

TEST_F(ParquetData, TrainsAndValidatesOnTheSplitsOfAFolder) {
  const auto data = [](const std::string& folder) -> std::vector<std::string> {
    return {"--data.train=" + folder, "--data.validation=" + folder, "--data.chat_template=chat.jinja"};
  };
  const std::string expected = losses("a", data("lines"));
  EXPECT_THAT(expected, HasSubstr("loss"));
  EXPECT_EQ(losses("b", data("hub")), expected);
  EXPECT_EQ(losses("c", {"--data.train=questions.parquet", "--evaluation.interval=0",
                         R"(--data.columns={"prompt": "question", "completion": "meta.answer"})"}),
            losses("d", {"--data.train=questions.jsonl", "--evaluation.interval=0"}));
  const Outcome refused =
      run({"train", "run.json", "--run.folder=e", "--evaluation.interval=0", "--data.train=questions.parquet",
           R"(--data.columns={"prompt": "questions", "completion": "meta.answer"})"});
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.errors, HasSubstr("the columns are \"question\", \"meta\", \"text\"; did you mean"));
}

// A run resumes where it stopped, over the same rows.
TEST_F(ParquetData, ResumesOverTheSameRows) {
  const std::vector<std::string> data = {"--data.train=hub", "--data.chat_template=chat.jinja",
                                         "--evaluation.interval=0", "--checkpoint.interval=1"};
  const std::string whole = losses("whole", data);
  std::vector<std::string> first = data;
  first.push_back("--training.steps=1");
  (void)losses("parts", first);
  std::vector<std::string> rest = data;
  rest.push_back("--checkpoint.allow_changes=[\"training.steps\"]");
  EXPECT_EQ(losses("parts", rest), whole);
}

}  // namespace
}  // namespace quench
