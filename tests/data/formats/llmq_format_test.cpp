#include "data/formats/llmq_format.h"

#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using testing::bytes_of;
using testing::expect_error;
using testing::llmq_header;
using testing::packed_bits;
using testing::read_mask;
using testing::TempDir;
using testing::write_file;

const std::vector<std::int32_t> kTokens{10, 11, 12, 13, 14, 15, 16, 17, 18, 19};

TEST(LlmqFormat, ReadsEveryVersion) {
  TempDir folder;
  const std::string tokens = bytes_of(kTokens);
  write_file(folder / "v1.bin", llmq_header({1, 4, 10}) + tokens);
  write_file(folder / "v2.bin", llmq_header({2, 4, 10, 100}) + tokens);
  write_file(folder / "v2m.bin",
             llmq_header({2, 4, 10, 100, 1}) + tokens + packed_bits({0, 0, 1, 1, 1, 0, 0, 0, 0, 1}));
  write_file(folder / "v3.bin", llmq_header({3, 4, 10, 100, 0, 1}) + tokens +
                                    bytes_of(std::vector<std::int32_t>{0, 1, 2, 0, 1, 2, 3, 0, 0, 0}));
  for (const char* name : {"v1.bin", "v2.bin", "v2m.bin", "v3.bin"}) {
    const auto source = open_token_file(folder / name);
    EXPECT_EQ(testing::read_all_tokens(*source), kTokens) << name;
    EXPECT_EQ(source->has_target_mask(), std::string(name) == "v2m.bin") << name;
  }
  const auto positions = open_token_file(folder / "v3.bin");
  EXPECT_EQ(testing::all_document_starts(*positions), (std::vector<std::uint64_t>{0, 3, 7, 8, 9}));
  std::vector<std::uint64_t> starts;
  positions->find_document_starts(3, testing::read_tokens(*positions, 3, 5), starts);
  EXPECT_EQ(starts, (std::vector<std::uint64_t>{7}));
}

// Both programs' loaders mask the target of input i by bit i: the flag of token i + 1 here.
TEST(LlmqFormat, MaskBitsBelongToTheNextToken) {
  TempDir folder;
  const std::vector<int> bits{0, 0, 1, 1, 1, 0, 0, 0, 0, 1};
  write_file(folder / "v2.bin", llmq_header({2, 4, 10, 100, 1}) + bytes_of(kTokens) + packed_bits(bits));
  write_file(folder / "v3.bin", llmq_header({3, 4, 10, 100, 1, 0}) + bytes_of(kTokens) +
                                    bytes_of(std::vector<std::int32_t>(10, 1)) + packed_bits(bits));
  for (const char* name : {"v2.bin", "v3.bin"}) {
    const auto source = open_token_file(folder / name);
    EXPECT_EQ(read_mask(*source, 0, 10), (std::vector<std::uint8_t>{0, 0, 0, 1, 1, 1, 0, 0, 0, 0})) << name;
    EXPECT_EQ(read_mask(*source, 3, 4), (std::vector<std::uint8_t>{1, 1, 1, 0})) << name;
    EXPECT_EQ(read_mask(*source, 9, 1), (std::vector<std::uint8_t>{0})) << name;
  }
}

TEST(LlmqFormat, RejectsUnfinishedAndBrokenFiles) {
  TempDir folder;
  const auto path = folder / "bad.bin";
  const std::string tokens = bytes_of(kTokens);
  const auto refuses = [&](const std::string& bytes, ErrorCode code, const std::string& part) {
    write_file(path, bytes);
    expect_error(code, {"bad.bin", part},
                 [&] { (void)open_token_file(path, {.format = token_formats().find("llmq")}); });
  };
  refuses(std::string(1023, '*') + "\n" + tokens, ErrorCode::corrupt, "unfinished");
  refuses(llmq_header({2, 4, 10, 100}).substr(0, 500), ErrorCode::corrupt, "500 bytes");
  refuses("X" + llmq_header({2, 4, 10, 100}).substr(1) + tokens, ErrorCode::corrupt, "BIN.TOK");
  refuses(llmq_header({4, 4, 10, 100}) + tokens, ErrorCode::unsupported, "version 4");
  refuses(llmq_header({2, 2, 10, 100}) + tokens, ErrorCode::unsupported, "2 bytes a token");
  refuses(llmq_header({2, 4, 0, 100}), ErrorCode::corrupt, "0 tokens");
  refuses(llmq_header({2, 4, -1, 100}) + tokens, ErrorCode::corrupt, "-1 tokens");
  refuses(llmq_header({2, 4, 10, 0}) + tokens, ErrorCode::corrupt, "vocabulary of 0");
  refuses(llmq_header({2, 4, 11, 100}) + tokens, ErrorCode::corrupt, "need 1068");
  refuses(llmq_header({2, 4, 10, 100, 1}) + tokens, ErrorCode::corrupt, "with masks");
  refuses(llmq_header({2, 4, 10, 100, 2}) + tokens, ErrorCode::corrupt, "has_masks is 2");
  refuses(llmq_header({3, 4, 10, 100, 0, 0}) + tokens, ErrorCode::corrupt, "position ids");
  refuses(llmq_header({2, 4, 10, 100}) + tokens + tokens, ErrorCode::corrupt, "the file has 1104");
}

TEST(LlmqFormat, UnfinishedFilesAreRecognisedWithoutBeingTold) {
  TempDir folder;
  write_file(folder / "bad.bin", std::string(1023, '*') + "\n");
  expect_error(ErrorCode::corrupt, {"bad.bin", "unfinished"}, [&] { (void)open_token_file(folder / "bad.bin"); });
}

}  // namespace
}  // namespace quench
