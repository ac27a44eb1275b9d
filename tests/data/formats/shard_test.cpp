#include <xxhash.h>

#include "data/formats/shard_format.h"
#include "data/formats/shard_writer.h"
#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;
using testing::read_mask;
using testing::TempDir;
using testing::write_file;

void write_small_shard(const std::filesystem::path& path, std::uint64_t vocab_size = 300, bool mask = false) {
  ShardWriter writer(path,
                     {.vocab_size = vocab_size, .eos_id = 2, .tokenizer_fingerprint = "abc", .target_mask = mask});
  writer.append(std::vector<std::int32_t>{5, 6, 2});
  writer.end_document();
  const std::vector<std::uint8_t> flags{0, 0, 1, 1, 1, 0, 1};
  const std::vector<std::int32_t> tokens{7, 8, 9, 10, 11, 299, 2};
  if (mask)
    writer.append(tokens, flags);
  else
    writer.append(tokens);
  writer.finish();
}

TEST(Shard, RoundTripWithDocumentsAndMask) {
  TempDir folder;
  for (const std::uint64_t vocab : {std::uint64_t{300}, std::uint64_t{128256}}) {
    const auto path = folder / "a.bin";
    write_small_shard(path, vocab, true);
    const auto source = open_token_file(path, {.vocab_size = vocab, .tokenizer_fingerprint = "abc"});
    EXPECT_EQ(testing::read_all_tokens(*source), (std::vector<std::int32_t>{5, 6, 2, 7, 8, 9, 10, 11, 299, 2}));
    EXPECT_EQ(testing::all_document_starts(*source), (std::vector<std::uint64_t>{0, 3}));
    EXPECT_EQ(read_mask(*source, 0, 10), (std::vector<std::uint8_t>{1, 1, 1, 0, 0, 1, 1, 1, 0, 1}));
    EXPECT_EQ(read_mask(*source, 7, 2), (std::vector<std::uint8_t>{1, 0}));
    EXPECT_EQ(source->tokenizer_fingerprint(), "abc");
    verify_shard(BinaryFile(path));
    EXPECT_EQ(read_shard_layout(BinaryFile(path)).element, vocab > 65536 ? DType::u32 : DType::u16);
  }
}

TEST(Shard, LargeShardCrossesTheWritersBuffer) {
  TempDir folder;
  const auto path = folder / "a.bin";
  const auto tokens = testing::iota<std::int32_t>(1500000);
  ShardWriter writer(path, {.vocab_size = 2000000});
  for (std::size_t i = 0; i < tokens.size(); i += 500) {
    writer.append(std::span(tokens).subspan(i, 500));
    writer.end_document();
    writer.end_document();  // an empty document leaves no trace
  }
  EXPECT_EQ(writer.document_count(), 3000u);
  writer.finish();
  verify_shard(BinaryFile(path));
  const auto source = open_token_file(path);
  EXPECT_EQ(testing::read_all_tokens(*source), tokens);
  EXPECT_EQ(testing::all_document_starts(*source).size(), 3000u);
}

TEST(Shard, NothingAppearsUntilFinished) {
  TempDir folder;
  {
    ShardWriter writer(folder / "a.bin", {.vocab_size = 10});
    writer.append(std::vector<std::int32_t>{1, 2});
    EXPECT_FALSE(std::filesystem::exists(folder / "a.bin"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  ShardWriter empty(folder / "a.bin", {.vocab_size = 10});
  expect_error(ErrorCode::invalid_argument, {"a.bin", "without tokens"}, [&] { empty.finish(); });
}

TEST(Shard, WriterRefusesBadInput) {
  TempDir folder;
  ShardWriter writer(folder / "a.bin", {.vocab_size = 10});
  expect_error(ErrorCode::invalid_argument, {"10", "vocabulary"},
               [&] { writer.append(std::vector<std::int32_t>{10}); });
  expect_error(ErrorCode::invalid_argument, {"-1"}, [&] { writer.append(std::vector<std::int32_t>{-1}); });
  expect_error(ErrorCode::invalid_argument, {"without a mask"},
               [&] { writer.append(std::vector<std::int32_t>{1}, std::vector<std::uint8_t>{1}); });
  expect_error(ErrorCode::invalid_argument, {"vocabulary of 0"}, [&] { ShardWriter(folder / "b.bin", {}); });
}

TEST(Shard, TruncationAndDamageAreFound) {
  TempDir folder;
  const auto path = folder / "a.bin";
  write_small_shard(path, 300, true);
  const std::string good = testing::read_file(path);
  const auto open = [&] { (void)open_token_file(path, {.format = token_formats().find("quench")}); };
  for (std::size_t length = 0; length < good.size(); length += 13) {
    write_file(path, good.substr(0, length));
    expect_error(ErrorCode::corrupt, {"a.bin"}, open);
  }
  write_file(path, good + good.substr(good.size() - 256));
  expect_error(ErrorCode::corrupt, {"do not match the file's"}, open);
  // Every byte of the trailer counts.
  for (std::size_t i = good.size() - 256; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    write_file(path, bad);
    expect_error(ErrorCode::corrupt, {"a.bin"}, open);
  }
  std::string bad = good;
  bad[70] = static_cast<char>(bad[70] ^ 1);
  write_file(path, bad);
  expect_error(ErrorCode::corrupt, {"hash"}, [&] { verify_shard(BinaryFile(path)); });
  bad = good;
  bad[8] = 9;
  write_file(path, bad);
  expect_error(ErrorCode::unsupported, {"version 9"}, open);
  bad = good;
  bad[12] = 3;
  write_file(path, bad);
  expect_error(ErrorCode::corrupt, {"3 bytes a token"}, open);
}

// Trailers that are well hashed but impossible.
TEST(Shard, ImpossibleTrailersAreRefused) {
  TempDir folder;
  const auto path = folder / "a.bin";
  write_small_shard(path);
  const std::string good = testing::read_file(path);
  const auto refuses = [&](auto change, const std::string& part) {
    ShardTrailer trailer;
    std::memcpy(&trailer, good.data() + good.size() - sizeof trailer, sizeof trailer);
    change(trailer);
    trailer.trailer_hash = XXH3_64bits(&trailer, offsetof(ShardTrailer, trailer_hash));
    write_file(path, good.substr(0, good.size() - sizeof trailer) + testing::bytes_of(trailer));
    expect_error(ErrorCode::corrupt, {"a.bin", part}, [&] { (void)open_token_file(path); });
  };
  refuses([](auto& t) { t.token_count = 0; }, "no tokens");
  refuses([](auto& t) { t.token_count = 20; }, "do not match");
  refuses([](auto& t) { t.token_count = std::uint64_t{1} << 63; }, "do not match");
  refuses([](auto& t) { t.document_count = std::uint64_t{1} << 61; }, "do not match");
  refuses([](auto& t) { t.document_count = 1; }, "do not match");
  refuses([](auto& t) { t.token_count = 9; }, "document 1 ends at token 10 after 3, with 9 tokens");
  refuses([](auto& t) { t.token_count = 11; }, "last document ends at token 10 of 11");
  refuses([](auto& t) { t.flags = 2; }, "flags");
  refuses([](auto& t) { t.flags = 1; }, "with a target mask");
  refuses([](auto& t) { t.eos_id = -2; }, "EOS id -2");
  refuses([](auto& t) { t.fingerprint_length = 161; }, "fingerprint of 161");
}

}  // namespace
}  // namespace quench
