#include "data/formats/llmc_format.h"

#include <unistd.h>

#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;
using testing::llmc_bytes;
using testing::TempDir;
using testing::write_file;

TEST(LlmcFormat, ReadsSixteenAndThirtyTwoBitFiles) {
  TempDir folder;
  write_file(folder / "gpt2.bin", llmc_bytes(std::vector<std::uint16_t>{50256, 1, 65535, 7}));
  const auto narrow = open_token_file(folder / "gpt2.bin");
  EXPECT_EQ(testing::read_all_tokens(*narrow), (std::vector<std::int32_t>{50256, 1, 65535, 7}));
  write_file(folder / "llama.bin", llmc_bytes(std::vector<std::uint32_t>{128000, 0, 128255}));
  const auto wide = open_token_file(folder / "llama.bin");
  EXPECT_EQ(testing::read_all_tokens(*wide), (std::vector<std::int32_t>{128000, 0, 128255}));
  EXPECT_THAT(wide->describe(), ::testing::AllOf(::testing::HasSubstr("llm.c"), ::testing::HasSubstr("u32")));
}

TEST(LlmcFormat, DocumentsEndAtTheEosId) {
  TempDir folder;
  write_file(folder / "a.bin", llmc_bytes(std::vector<std::uint16_t>{5, 9, 6, 7, 9, 8}));
  const auto source = open_token_file(folder / "a.bin", {.eos_id = 9});
  EXPECT_EQ(testing::all_document_starts(*source), (std::vector<std::uint64_t>{0, 2, 5}));
  const auto whole = open_token_file(folder / "a.bin");
  EXPECT_EQ(testing::all_document_starts(*whole), (std::vector<std::uint64_t>{0}));
}

TEST(LlmcFormat, RejectsWhatTheHeaderDoesNotExplain) {
  TempDir folder;
  const auto path = folder / "bad.bin";
  const std::vector<std::uint16_t> tokens{1, 2, 3, 4};
  const auto open = [&] { (void)open_token_file(path, {.format = token_formats().find("llm.c")}); };
  const auto refuses = [&](const std::string& bytes, ErrorCode code, const std::string& part) {
    write_file(path, bytes);
    expect_error(code, {"bad.bin", part}, open);
  };
  refuses("", ErrorCode::corrupt, "0 bytes");
  refuses(llmc_bytes(tokens).substr(0, 1023), ErrorCode::corrupt, "1023 bytes");
  refuses(llmc_bytes(tokens, 20240521, 1, 4), ErrorCode::corrupt, "20240521");
  refuses(llmc_bytes(tokens, 20240522, 1, 4), ErrorCode::unsupported, "multiple-choice");
  refuses(llmc_bytes(tokens, 20240520, 2, 4), ErrorCode::unsupported, "version 2");
  refuses(llmc_bytes(tokens, 20240801, 1, 4), ErrorCode::unsupported, "version 1");
  refuses(llmc_bytes(tokens, 20240520, 1, 0), ErrorCode::corrupt, "0 tokens");
  refuses(llmc_bytes(tokens, 20240520, 1, -4), ErrorCode::corrupt, "-4 tokens");
  refuses(llmc_bytes(tokens, 20240520, 1, 5), ErrorCode::corrupt, "the file has 1032");
  refuses(llmc_bytes(tokens) + "x", ErrorCode::corrupt, "the file has 1033");
  refuses(llmc_bytes(tokens, 20240801, 7, 4), ErrorCode::corrupt, "need 1040");
}

// The largest count that the header can hold, as a sparse file: offsets past 2 GiB.
TEST(LlmcFormat, ReadsPastTwoGibibytes) {
  TempDir folder;
  const auto path = folder / "large.bin";
  constexpr std::int32_t kCount = 2147483647;
  write_file(path, llmc_bytes(std::vector<std::uint16_t>{}, 20240520, 1, kCount));
  const std::uint64_t bytes = 1024 + 2 * std::uint64_t{kCount};
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(bytes)), 0);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const std::vector<std::uint16_t> last{11, 12, 13};
  file.seekp(static_cast<std::streamoff>(bytes - 6));
  file << testing::bytes_of(last);
  file.close();
  const auto source = open_token_file(path, {.vocab_size = 50257});
  EXPECT_EQ(source->size(), std::uint64_t{kCount});
  EXPECT_EQ(testing::read_tokens(*source, kCount - 4, 4), (std::vector<std::int32_t>{0, 11, 12, 13}));
  EXPECT_EQ(testing::read_tokens(*source, 1100000000, 2), (std::vector<std::int32_t>{0, 0}));
}

}  // namespace
}  // namespace quench
