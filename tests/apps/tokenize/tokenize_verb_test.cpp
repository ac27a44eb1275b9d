// The tokenize verb as a user meets it: pipes, packed files, pieces of a text, special tokens of an own tokenizer.

#include <gmock/gmock.h>

#include <cstdlib>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_file;
using testing::run_program;
using testing::TempDir;
using testing::write_file;

// A command line of the shell in which $QUENCH is the program.
Outcome run_shell(const TempDir& folder, const std::string& command) {
  const std::string line = "cd '" + folder.path().string() + "' && export QUENCH='" + testing::program_path() +
                           "' && { " + command + " ; } > stdout.txt 2> stderr.txt";
  const int status = std::system(line.c_str());
  return {WEXITSTATUS(status), read_file(folder / "stdout.txt"), read_file(folder / "stderr.txt")};
}

std::string records(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "{\"text\": \"the cat sat on mat number " + std::to_string(i) + "\"}\n";
  return text;
}

TEST(TokenizeVerb, StandardInputAndGzipGiveTheShardsOfAFile) {
  TempDir folder;
  write_file(folder / "a.jsonl", records(200));
  ASSERT_EQ(run_shell(folder, "gzip -k a.jsonl").status, 0);
  for (const char* way : {"$QUENCH tokenize --input a.jsonl --tokenizer bytes --output plain",
                          "$QUENCH tokenize --input a.jsonl.gz --tokenizer bytes --output packed",
                          "cat a.jsonl | $QUENCH tokenize --input - --format jsonl --tokenizer bytes --output piped",
                          "$QUENCH tokenize --input - --format jsonl --tokenizer bytes --output both < a.jsonl.gz"}) {
    const Outcome outcome = run_shell(folder, way);
    EXPECT_EQ(outcome.status, 0) << way << outcome.errors;
  }
  const std::string plain = read_file(folder / "plain/train-00000.bin");
  ASSERT_FALSE(plain.empty());
  for (const char* other : {"packed", "piped", "both"})
    EXPECT_EQ(read_file(folder / other / "train-00000.bin"), plain) << other;
}

TEST(TokenizeVerb, ACutOffGzipFileIsNamedWithItsByte) {
  TempDir folder;
  write_file(folder / "a.jsonl", records(200));
  const Outcome outcome = run_shell(folder,
                                    "gzip -c a.jsonl | head -c 300 > b.jsonl.gz; "
                                    "$QUENCH tokenize --input b.jsonl.gz --tokenizer bytes --output out");
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.errors, HasSubstr("b.jsonl.gz: the gzip data ends at byte 300"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(TokenizeVerb, StandardInputNeedsAFormatAndHasNoLastPart) {
  TempDir folder;
  Outcome outcome = run_shell(folder, "echo x | $QUENCH tokenize --input - --tokenizer bytes --output out");
  EXPECT_THAT(outcome.errors, HasSubstr("standard input: the text format is unknown"));
  outcome = run_shell(
      folder, "echo x | $QUENCH tokenize --input - --format text --tokenizer bytes --output out --validation 0.1");
  EXPECT_THAT(outcome.errors, HasSubstr("hold out by hash"));
}

TEST(TokenizeVerb, ShowPrintsIdsAndPieces) {
  TempDir folder;
  Outcome outcome = run_program(folder.path(), {"tokenize", "show", "--tokenizer", "bytes", "a \n"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(outcome.output,
            "     256  \"<|begin_of_text|>\"  special\n      97  \"a\"\n      32  \" \"\n      10  \"\\n\"\n"
            "4 tokens of 3 bytes\n");
  outcome =
      run_program(folder.path(), {"tokenize", "show", "--tokenizer", "bytes", "--no-special", "--json", "\xC3\xA9"});
  const Json json = Json::parse(outcome.output);
  EXPECT_EQ(json.at("count").as_int(), 2);
  EXPECT_EQ(json.at("tokens").as_array()[0].at("id").as_int(), 0xC3);
  EXPECT_EQ(json.at("tokens").as_array()[0].at("bytes").as_string(), "c3");
  outcome = run_shell(folder, "printf 'x<|end_of_text|>' | $QUENCH tokenize show --tokenizer bytes --input - --json");
  EXPECT_EQ(Json::parse(outcome.output).at("tokens").as_array()[2].at("special").as_bool(), true);
  outcome = run_program(folder.path(), {"tokenize", "show", "--tokenizer", "bytes"});
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.errors, HasSubstr("needs a text or --input"));
}

TEST(TokenizeVerb, SpecialTokensOfAnOwnTokenizerAreAddedTokensWithIds) {
  TempDir folder;
  write_file(folder / "a.jsonl", records(300));
  Outcome outcome = run_program(folder.path(), {"tokenize", "train", "--input", "a.jsonl", "--output", "tokenizer",
                                                "--vocab-size", "300", "--special", "<|user|>", "<|assistant|>"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const Json file = Json::parse_file(folder / "tokenizer/tokenizer.json");
  const auto& added = file.at("added_tokens").as_array();
  ASSERT_EQ(added.size(), 5u);
  EXPECT_EQ(added[3].at("content").as_string(), "<|user|>");
  EXPECT_TRUE(added[3].at("special").as_bool());
  outcome = run_program(folder.path(), {"tokenize", "show", "--tokenizer", "tokenizer", "--no-special", "--json",
                                        "<|user|>cat<|assistant|>"});
  const Json shown = Json::parse(outcome.output);
  EXPECT_EQ(shown.at("tokens").as_array().front().at("id").as_int(), added[3].at("id").as_int());
  EXPECT_EQ(shown.at("tokens").as_array().back().at("id").as_int(), added[4].at("id").as_int());
}

TEST(TokenizeVerb, TrainsOnTheCommonPrefixOfAMegatronPair) {
  TempDir folder;
  const auto u64 = [](std::uint64_t value) { return std::string(reinterpret_cast<const char*>(&value), 8); };
  const auto u32 = [](std::uint32_t value) { return std::string(reinterpret_cast<const char*>(&value), 4); };
  std::string tokens;
  for (int i = 0; i < 600; ++i) tokens += {static_cast<char>('a' + i % 20), '\0'};
  write_file(folder / "pair.bin", tokens);
  write_file(folder / "pair.idx", "MMIDIDX" + std::string(2, '\0') + u64(1) + "\x08" + u64(1) + u64(2) + u32(600) +
                                      u64(0) + u64(0) + u64(1));
  write_file(folder / "run.json", R"({
    "model": {"model_type": "llama", "vocab_size": 300, "hidden_size": 16, "intermediate_size": 16,
              "num_hidden_layers": 1, "num_attention_heads": 2},
    "data": {"train": "pair", "seq_len": 16},
    "training": {"steps": 1, "micro_batch_size": 2},
    "run": {"folder": "run"}})");
  const Outcome outcome = run_program(folder.path(), {"train", "run.json", "--device=cpu"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
}

}  // namespace
}  // namespace quench
