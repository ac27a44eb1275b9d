// Texts that hold special tokens, and which tokens of a record are trained on.

#include <gmock/gmock.h>

#include <cmath>
#include <sstream>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_program;
using testing::TempDir;
using testing::write_file;

// The built-in tokenizer: <|begin_of_text|> is 256, <|end_of_text|> 257, <|pad|> 258.
class TextRecords : public ::testing::Test {
 protected:
  // A record as training reads it, with more arguments.
  Json shown(const std::string& file, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"tokenize", "show",     "--tokenizer", "bytes", "--input",
                                       file,       "--record", "1",           "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run_program(folder_.path(), arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.status == 0 ? Json::parse(outcome.output) : Json::object();
  }

  static std::vector<std::int64_t> ids(const Json& shown) {
    std::vector<std::int64_t> result;
    for (const Json& token : shown.at("tokens").as_array()) result.push_back(token.at("id").as_int());
    return result;
  }

  Outcome tokenize(const std::string& file, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"tokenize", "--tokenizer", "bytes", "--input",
                                       file,       "--output",    "out",   "--overwrite"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder_.path(), arguments);
  }

  TempDir folder_;
};

using Ids = std::vector<std::int64_t>;

TEST_F(TextRecords, SpecialTokensInRecordsAreTokensAndTheEndIsNotDoubled) {
  write_file(folder_ / "text.jsonl", R"({"text": "a<|end_of_text|>b<|end_of_text|>"})");
  EXPECT_EQ(ids(shown("text.jsonl")), (Ids{256, 'a', 257, 'b', 257}));
  EXPECT_EQ(ids(shown("text.jsonl", {"--special-text", "text"})).size(), 1 + 1 + 15 + 1 + 15 + 1U);
  write_file(folder_ / "framed.jsonl", R"({"text": "<|begin_of_text|>a<|end_of_text|>\n"})");
  EXPECT_EQ(ids(shown("framed.jsonl")), (Ids{256, 'a', 257, '\n'}));
  write_file(folder_ / "pair.jsonl", R"({"prompt": "<|pad|>q", "completion": "a<|end_of_text|>"})");
  const Json pair = shown("pair.jsonl");
  EXPECT_EQ(ids(pair), (Ids{256, 258, 'q', 'a', 257}));
  EXPECT_EQ(pair.at("trained").as_int(), 2);
}

TEST_F(TextRecords, SpecialTokensInTextFilesStayTextAndAreCounted) {
  write_file(folder_ / "doc.txt", "one<|end_of_text|>two<|end_of_text|>\n<|pad|>");
  Outcome outcome = tokenize("doc.txt");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.errors,
              AllOf(HasSubstr("<|end_of_text|> (2 times), <|pad|> (1 times)"), HasSubstr("--special-text")));
  const std::string text = testing::read_file(folder_ / "out/train-00000.bin");
  outcome = tokenize("doc.txt", {"--special-text", "text"});
  EXPECT_THAT(outcome.errors, Not(HasSubstr("(2 times)")));
  EXPECT_EQ(testing::read_file(folder_ / "out/train-00000.bin"), text);
  outcome = tokenize("doc.txt", {"--special-text", "tokens"});
  EXPECT_THAT(outcome.errors, Not(HasSubstr("(2 times)")));
  EXPECT_EQ(ids(shown("doc.txt", {"--special-text", "tokens"})),
            (Ids{256, 'o', 'n', 'e', 257, 't', 'w', 'o', 257, '\n', 258, 257}));
  write_file(folder_ / "text.jsonl", R"({"text": "a<|end_of_text|>"})");
  EXPECT_THAT(tokenize("text.jsonl").errors, Not(HasSubstr("times")));
}

TEST_F(TextRecords, ShowMarksTrainedTokensAndCountsThem) {
  write_file(folder_ / "pairs.jsonl", R"({"prompt": "q", "completion": "a"}
{"prompt": "what ", "completion": "\u001b[31mred\u00e9"})");
  Outcome outcome = run_program(
      folder_.path(), {"tokenize", "show", "--tokenizer", "bytes", "--input", "pairs.jsonl", "--record", "2"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(outcome.output,
            "<|begin_of_text|>what [[\\x1b[31mred\u00e9<|end_of_text|>]]\n"
            "pairs.jsonl:2: 17 tokens, 11 trained, 0 dropped\n");
  const auto counts = [&](const char* on_long, const char* seq_len) {
    const Outcome limited =
        run_program(folder_.path(), {"tokenize", "show", "--tokenizer", "bytes", "--input", "pairs.jsonl", "--record",
                                     "2", "--on-long", on_long, "--seq-len", seq_len});
    return limited.output.substr(limited.output.find("jsonl:2: ") + 9);
  };
  EXPECT_EQ(counts("truncate", "9"), "17 tokens, 4 trained, 7 dropped (data.on_long truncate at data.seq_len 9)\n");
  EXPECT_EQ(counts("truncate", "4"), "17 tokens, 0 trained, 17 dropped (data.on_long truncate at data.seq_len 4)\n");
  EXPECT_EQ(counts("drop", "9"), "17 tokens, 0 trained, 17 dropped (data.on_long drop at data.seq_len 9)\n");
  EXPECT_EQ(counts("split", "9"), "17 tokens, 11 trained, 0 dropped\n");
  EXPECT_EQ(counts("drop", "16"), "17 tokens, 11 trained, 0 dropped\n");
  outcome = run_program(folder_.path(),
                        {"tokenize", "show", "--tokenizer", "bytes", "--input", "pairs.jsonl", "--record", "3"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("record 3 does not exist; the file has 2"));
}

TEST_F(TextRecords, AFineTuneBeginsWithItsFirstRecord) {
  write_file(folder_ / "pairs.jsonl", R"({"prompt": "q", "completion": "a"}
{"prompt": "r", "completion": "b"}
)");
  write_file(folder_ / "run.json", R"({
      "model": {"model_type": "llama", "vocab_size": 260, "hidden_size": 16, "intermediate_size": 24,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                "max_position_embeddings": 64, "tie_word_embeddings": true},
      "data": {"train": ["pairs.jsonl"], "tokenizer": "bytes", "seq_len": 8, "packing": false},
      "training": {"steps": 2, "micro_batch_size": 1, "dtype": "f32"},
      "checkpoint": {"interval": 1}, "run": {"folder": "run"}})");
  Outcome outcome =
      run_program(folder_.path(), {"train", "run.json", "--training.steps=1", "--lr_schedule.decay_steps=2"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("<|begin_of_text|>q[[a<|end_of_text|>]]\n"),
                                    HasSubstr("first record: 4 tokens, 2 trained, 0 dropped\n")));
  outcome = run_program(folder_.path(), {"train", "run.json", "--lr_schedule.decay_steps=2"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, Not(HasSubstr("first record"))) << "a resumed run";
}

TEST_F(TextRecords, APairIsShownWithBothAnswers) {
  write_file(folder_ / "pairs.jsonl", R"({"prompt": "q", "chosen": "a", "rejected": "bc"}
{"prompt": "r", "chosen": "d", "rejected": "ef"}
)");
  const auto show = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"tokenize", "show",        "--tokenizer", "bytes",
                                       "--input",  "pairs.jsonl", "--record"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder_.path(), arguments);
  };
  Outcome outcome = show({"2", "--preference", "pairs"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("r[[d<|end_of_text|>]]\npairs.jsonl:2, chosen: 4 tokens, 2 trained"),
                                    HasSubstr("r[[ef<|end_of_text|>]]\npairs.jsonl:2, rejected: 5 tokens, 3 trained"),
                                    Not(HasSubstr("pairs.jsonl:1"))));
  outcome = show({"1", "--preference", "pairs", "--json"});
  EXPECT_EQ(Json::parse(outcome.output).at("rejected").at("trained").as_int(), 3);
  outcome = show({"3", "--preference", "pairs"});
  EXPECT_THAT(outcome.errors, HasSubstr("record 3 does not exist; the file has 2"));
  outcome = show({"1"});
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("section preference"), HasSubstr("--preference pairs")));
}

// One file's share is that of its records, and every record is trained on once.
TEST_F(TextRecords, ARunOverTwoFilesNamesThemAndTheirShares) {
  std::string text;
  for (int i = 0; i < 12; ++i) text += fmt::format(R"({{"prompt": "a", "completion": "{}"}})", i % 10) + "\n";
  write_file(folder_ / "long.jsonl", text);
  write_file(folder_ / "short.jsonl", text.substr(0, text.size() / 12 * 3));
  write_file(folder_ / "run.json", R"({
      "model": {"model_type": "llama", "vocab_size": 260, "hidden_size": 16, "intermediate_size": 24,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                "max_position_embeddings": 64, "tie_word_embeddings": true},
      "data": {"train": ["long.jsonl", "short.jsonl"], "tokenizer": "bytes", "seq_len": 8, "packing": false},
      "training": {"epochs": 1, "micro_batch_size": 1, "dtype": "f32"},
      "checkpoint": {"enable": false}, "run": {"folder": "run"}})");
  const Outcome outcome = run_program(folder_.path(), {"train", "run.json"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("long.jsonl: 48 tokens, 80.00% of the samples"),
                                    HasSubstr("short.jsonl: 12 tokens, 20.00% of the samples"),
                                    HasSubstr("finished step 15 of 15"), HasSubstr("first record of short.jsonl")));
}

// Rows of the last step, and held-out records, are the same for any number of processes.
TEST_F(TextRecords, TwoProcessesEndAnEpochAsOneDoes) {
  std::string text;
  for (int i = 0; i < 14; ++i) text += fmt::format(R"({{"prompt": "a{}", "completion": "{}"}})", i % 5, i) + "\n";
  write_file(folder_ / "a.jsonl", text);
  write_file(folder_ / "run.json", R"({
      "model": {"model_type": "llama", "vocab_size": 260, "hidden_size": 16, "intermediate_size": 24,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                "max_position_embeddings": 64, "tie_word_embeddings": true},
      "data": {"train": ["a.jsonl"], "validation_split": 3, "tokenizer": "bytes", "seq_len": 8, "packing": false},
      "training": {"epochs": 1, "micro_batch_size": 1, "global_batch_size": 4, "dtype": "f32"},
      "metrics": {"log_every": 1, "tensorboard": false}, "evaluation": {"interval": 1},
      "checkpoint": {"enable": false}})");
  const auto values = [&](std::vector<std::string> arguments, const std::string& name) {
    arguments.insert(arguments.end(), {"train", "run.json", "--run.folder=" + name});
    const Outcome outcome = run_program(folder_.path(), arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.errors << outcome.output;
    std::vector<double> losses;
    for (const char* file : {"metrics.jsonl", "evaluations.jsonl"}) {
      std::istringstream lines(testing::read_file(folder_ / name / "metrics" / file));
      for (std::string line; std::getline(lines, line);) {
        const Json record = Json::parse(line);
        const Json* measured = record.find("values");
        losses.push_back((measured != nullptr ? *measured : record).at("loss").as_double());
        if (const Json* seen = record.find("tokens_seen")) losses.push_back(seen->as_double());
      }
    }
    return losses;
  };
  const std::vector<double> one = values({}, "one"),
                            two = values({"run", "--standalone", "--nproc-per-node", "2"}, "two");
  ASSERT_EQ(one.size(), 9u) << "three steps: loss, tokens, validation";
  ASSERT_EQ(two.size(), 9u);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 1e-5 * std::abs(one[i])) << i;
}

TEST_F(TextRecords, APreferenceRunBeginsWithItsFirstPair) {
  write_file(folder_ / "pairs.jsonl", R"({"prompt": "q", "chosen": "a", "rejected": "bc"}
{"prompt": "r", "chosen": "d", "rejected": "e"}
)");
  write_file(folder_ / "run.json", R"({
      "model": {"model_type": "llama", "vocab_size": 260, "hidden_size": 16, "intermediate_size": 24,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                "max_position_embeddings": 64, "tie_word_embeddings": true},
      "data": {"train": ["pairs.jsonl"], "tokenizer": "bytes", "seq_len": 16},
      "training": {"steps": 1, "micro_batch_size": 1, "dtype": "f32"}, "preference": {"loss": "dpo"},
      "checkpoint": {"enable": false}, "run": {"folder": "run"}})");
  const Outcome outcome = run_program(folder_.path(), {"train", "run.json"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("q[[a<|end_of_text|>]]\nfirst pair, chosen: "),
                    HasSubstr("q[[bc<|end_of_text|>]]\nfirst pair, rejected: "), Not(HasSubstr("first record"))));
}

// Pairs stay together in shards and in the held-out part; a run over them is that over their text.
TEST_F(TextRecords, AnswerRecordsMayBeTokenizedBefore) {
  std::string pairs;
  for (int i = 0; i < 12; ++i)
    pairs += fmt::format(R"({{"prompt": "q{0}", "chosen": "yes {0}", "rejected": "no {0}"}})", i) + "\n";
  write_file(folder_ / "pairs.jsonl", pairs);
  const std::vector<std::string> tokenize{"tokenize", "--tokenizer", "bytes", "--input", "pairs.jsonl", "--preference"};
  const auto run = [&](std::vector<std::string> arguments) {
    const Outcome outcome = run_program(folder_.path(), std::move(arguments));
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.output;
  };
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = tokenize;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  run(with({"pairs", "--output", "whole"}));
  const std::string parts =
      run(with({"pairs", "--output", "parts", "--max-shard-tokens", "25", "--validation", "0.3"}));
  std::istringstream lines(parts);
  int shards = 0;
  for (std::string line; std::getline(lines, line);) {
    int documents = 0;
    const std::size_t at = line.find("tokens, ");
    if (at == std::string::npos) continue;
    documents = std::stoi(line.substr(at + 8));
    EXPECT_EQ(documents % 2, 0) << line;
    ++shards;
  }
  EXPECT_GT(shards, 3) << parts;
  write_file(folder_ / "run.json", R"({
      "model": {"model_type": "llama", "vocab_size": 260, "hidden_size": 16, "intermediate_size": 24,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                "max_position_embeddings": 64, "tie_word_embeddings": true},
      "data": {"train": ["pairs.jsonl"], "tokenizer": "bytes", "seq_len": 32},
      "training": {"steps": 3, "micro_batch_size": 1, "dtype": "f32"}, "preference": {"loss": "dpo"},
      "checkpoint": {"enable": false}, "run": {"folder": "run"}})");
  const auto losses = [&](const std::string& data) {
    run({"train", "run.json", "--data.train=" + data, "--run.folder=" + data + ".run"});
    std::vector<double> values;
    std::istringstream records(testing::read_file(folder_ / (data + ".run") / "metrics" / "metrics.jsonl"));
    for (std::string line; std::getline(records, line);) values.push_back(Json::parse(line).at("loss").as_double());
    EXPECT_FALSE(values.empty());
    return values;
  };
  EXPECT_EQ(losses("whole"), losses("pairs.jsonl"));
  run({"train", "run.json", "--data.train=parts", "--run.folder=parts.run"});
}

}  // namespace
}  // namespace quench
