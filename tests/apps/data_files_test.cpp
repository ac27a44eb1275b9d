// Data in the formats that people have, through the program.

#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;
using testing::TempDir;
using testing::write_file;

// Tokens of a data set made of the file, without the summary, which names it.
std::string shard_of(const TempDir& folder, const std::string& input, const std::vector<std::string>& options = {}) {
  std::vector<std::string> arguments = {"tokenize", "--tokenizer", "bytes", "--input",
                                        input,      "--output",    "out",   "--overwrite"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const Outcome outcome = run_program(folder.path(), arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  return testing::read_file(folder / "out/train-00000.bin");
}

TEST(DataFilesVerb, TheSameRecordsInAnyTextFormatGiveTheSameShard) {
  const TempDir folder;
  write_file(folder / "a.jsonl", "{\"text\": \"one, \\\"two\\\"\"}\n{\"text\": \"three\"}\n");
  write_file(folder / "a.json", "[{\"text\": \"one, \\\"two\\\"\"},\n {\"text\": \"three\"}]\n");
  write_file(folder / "a.csv", "text,n\n\"one, \"\"two\"\"\",1\nthree,2\n");
  write_file(folder / "b.csv", "body,text\n\"one, \"\"two\"\"\",x\nthree,y\n");
  std::filesystem::create_directories(folder / "set/data");
  write_file(folder / "set/README.md", "A data set");
  write_file(folder / "set/data/train-00000-of-00001.csv", "text\n\"one, \"\"two\"\"\"\nthree\n");
  write_file(folder / "set/data/test-00000-of-00001.csv", "text\nfour\n");
  const std::string expected = shard_of(folder, "a.jsonl");
  EXPECT_EQ(shard_of(folder, "a.json"), expected);
  EXPECT_EQ(shard_of(folder, "a.csv"), expected);
  EXPECT_EQ(shard_of(folder, "b.csv", {"--columns", "text=body"}), expected);
  EXPECT_EQ(shard_of(folder, "set"), expected);
}

TEST(DataFilesVerb, AReadyRunTakesRecordsOfAnyFormat) {
  const TempDir folder;
  write_file(folder / "a.csv",
             "n,text\n1,\"The ferry, and then a long way home\"\n2,Once upon a time there was a boat\n");
  const std::string model = (testing::source_dir() / "tests/train/rolling_likelihood/bos").string();
  const Outcome outcome =
      run_program(folder.path(), {"train", "finetune_llama-3.2-1b", "--model.path=" + model, "--data.train=a.csv",
                                  "--data.seq_len=16", "--training.steps=1", "--training.micro_batch_size=1",
                                  "--training.global_batch_size=1", "--device", "cpu"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("The ferry, and then a long way home"));
}

TEST(DataFilesVerb, WithoutArrowAParquetFileIsRefusedByNameWithWhatToDo) {
  const TempDir folder;
  write_file(folder / "a.parquet", "PAR1....PAR1");
  setenv("QUENCH_ARROW_LIBRARY", "/nowhere/libquench_arrow.so", 1);
  const Outcome outcome =
      run_program(folder.path(), {"tokenize", "--tokenizer", "bytes", "--input", "a.parquet", "--output", "out"});
  unsetenv("QUENCH_ARROW_LIBRARY");
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("a.parquet: Apache Arrow is needed"), HasSubstr("scripts/setup.sh"),
                                    HasSubstr("read_parquet('a.parquet').to_json('a.jsonl'")));
}

}  // namespace
}  // namespace quench
