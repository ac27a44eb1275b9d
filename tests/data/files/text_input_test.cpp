#include "data/files/text_input.h"

#include <gmock/gmock.h>
#include <zlib.h>
#include <zstd.h>

#include "data/formats/token_stream.h"
#include "data/sampling/open_dataset.h"
#include "data/text/document_reader.h"
#include "data/text/tokenize.h"
#include "tests/data/sampling/token_fixtures.h"
#include "tests/data/tokenizer/bpe_fixtures.h"

namespace quench {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::TempDir;
using testing::write_file;

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstd(const std::string& text, int window_log = 0) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  if (window_log > 0) {
    ZSTD_CCtx_setParameter(context, ZSTD_c_enableLongDistanceMatching, 1);
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  }
  std::string packed(ZSTD_compressBound(text.size()) + 64, '\0');
  // As a stream, which does not tell the size of its text.
  ZSTD_inBuffer input{text.data(), text.size(), 0};
  ZSTD_outBuffer output{packed.data(), packed.size(), 0};
  EXPECT_EQ(ZSTD_compressStream2(context, &output, &input, ZSTD_e_flush), 0u);
  EXPECT_EQ(ZSTD_compressStream2(context, &output, &input, ZSTD_e_end), 0u);
  packed.resize(output.pos);
  ZSTD_freeCCtx(context);
  return packed;
}

std::string read_all(const std::filesystem::path& path, std::size_t step = 1000) {
  TextInput input(path);
  std::string text, block(step, '\0');
  while (const std::size_t count = input.read(std::as_writable_bytes(std::span(block)))) text.append(block, 0, count);
  EXPECT_EQ(input.position(), std::filesystem::file_size(path));
  return text;
}

std::string numbers(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "line " + std::to_string(i * 7919 % 10007) + "\n";
  return text;
}

TEST(TextInput, PlainFilesAndGzipMembersGiveTheSameBytes) {
  TempDir folder;
  const std::string text = numbers(60'000);
  const std::size_t half = text.size() / 2;
  const std::vector<std::string> files = {text,
                                          gzip(text),
                                          gzip(text.substr(0, half)) + gzip("") + gzip(text.substr(half)),
                                          gzip(text) + std::string(100, '\0'),
                                          zstd(text),
                                          zstd(text.substr(0, half)) + zstd("") + zstd(text.substr(half)),
                                          std::string("\x50\x2A\x4D\x18\x03\0\0\0abc", 11) + zstd(text)};
  for (const std::string& bytes : files) {
    write_file(folder / "a", bytes);
    for (const std::size_t step : {std::size_t{1000}, std::size_t{1} << 20})
      EXPECT_EQ(read_all(folder / "a", step), text);
  }
  for (const char* small : {"", "a", "\x1F", "ab"}) {
    write_file(folder / "a", small);
    EXPECT_EQ(read_all(folder / "a"), small);
    write_file(folder / "a", gzip(small));
    EXPECT_EQ(read_all(folder / "a"), small);
  }
}

TEST(TextInput, BrokenGzipDataNamesTheByte) {
  TempDir folder;
  const std::string packed = gzip(numbers(1000));
  const auto error = [&](const std::string& bytes) {
    write_file(folder / "a.gz", bytes);
    return error_of([&] { (void)read_all(folder / "a.gz"); });
  };
  EXPECT_THAT(error(packed.substr(0, 500)),
              AllOf(StartsWith("corrupt"), HasSubstr("a.gz: the gzip data ends at byte 500")));
  EXPECT_THAT(error(packed.substr(0, packed.size() - 1)), HasSubstr("the file is truncated"));
  EXPECT_THAT(error(packed + "rest"),
              HasSubstr(fmt::format("something other than gzip data at byte {}", packed.size())));
  std::string damaged = packed;
  for (std::size_t i = 600; i < 620; ++i) damaged[i] = static_cast<char>(~damaged[i]);
  EXPECT_THAT(error(damaged), AllOf(StartsWith("corrupt"), HasSubstr("damaged gzip data at byte")));
  damaged = packed;
  damaged[damaged.size() - 6] ^= 1;  // the checksum
  EXPECT_THAT(error(damaged), HasSubstr("incorrect data check"));
}

// 200 MB of one line in 200 KB: the line is reported as too long, not held.
TEST(TextInput, AGzipBombStaysWithinTheDocumentLimit) {
  TempDir folder;
  const std::string piece = gzip(std::string(std::size_t{20} << 20, 'x'));
  std::string bomb;
  for (int i = 0; i < 10; ++i) bomb += piece;
  write_file(folder / "a.jsonl.gz", bomb);
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_THAT(error_of([&] {
                (void)tokenize_files(*tokenizer, {.inputs = {(folder / "a.jsonl.gz").string()},
                                                  .reader = {.max_document_bytes = 1 << 20},
                                                  .output = folder / "out"});
              }),
              HasSubstr("a line of more than 1048576 bytes"));
}

TEST(Tokenize, PackedFilesGiveTheShardsOfPlainOnes) {
  TempDir folder;
  std::string records, lines;
  for (int i = 0; i < 400; ++i) {
    records += "{\"text\": \"document " + std::to_string(i) + "\"}\n";
    lines += "document " + std::to_string(i) + "\n\n";
  }
  const auto tokenizer = load_tokenizer("bytes");
  const auto train_shard = [&](const std::string& name, const std::string& bytes) {
    write_file(folder / name, bytes);
    const auto output = folder / ("out-" + name);
    const TokenizeResult result = tokenize_files(*tokenizer, {.inputs = {(folder / name).string()},
                                                              .reader = {.split = TextSplit::blank_line},
                                                              .output = output,
                                                              .validation_fraction = 0.25});
    EXPECT_NEAR(static_cast<double>(result.validation[0].documents), 100, 10) << name;
    return testing::read_file(output / "train-00000.bin") == testing::read_file(folder / "out-a.jsonl/train-00000.bin");
  };
  EXPECT_TRUE(train_shard("a.jsonl", records));
  EXPECT_TRUE(train_shard("b.txt", lines));
  // Where the last part begins is found from packed bytes, which need not agree to the document.
  (void)train_shard("c.jsonl.gz", gzip(records));
  (void)train_shard("d.txt.gz", gzip(lines));
}

TEST(MegatronFormat, PatternsTakeTheCommonPrefixOfAPair) {
  TempDir folder;
  write_file(folder / "pair.bin", testing::bytes_of(std::vector<std::uint16_t>{1, 2, 3}));
  write_file(folder / "pair.idx", testing::MegatronIndex::make(8, 2, {3}, {0, 1}).bytes());
  EXPECT_EQ(expand_file_patterns({(folder / "pair").string()}),
            (std::vector<std::filesystem::path>{folder / "pair.bin"}));
  EXPECT_EQ(TokenStream::open({(folder / "pair").string()}, {})->size(), 3u);
  std::filesystem::remove(folder / "pair.idx");
  EXPECT_EQ(expand_file_patterns({(folder / "pair").string()}), (std::vector<std::filesystem::path>{folder / "pair"}));
}

TEST(TextInput, PeekedTextIsReadAgain) {
  TempDir folder;
  const std::string text = numbers(60'000);
  for (const std::string& bytes : {text, gzip(text), zstd(text), std::string("abc"), gzip("a"), std::string()}) {
    write_file(folder / "a", bytes);
    TextInput input(folder / "a");
    const std::string start(input.peek());
    EXPECT_GE(start.size(), std::min<std::size_t>(65536, read_all(folder / "a").size()));
    std::string read(text.size(), '\0');
    read.resize(input.read(std::as_writable_bytes(std::span(read))));
    EXPECT_EQ(read, read_all(folder / "a"));
    EXPECT_TRUE(read.starts_with(start));
  }
}

TEST(TextInput, DamagedZstdDataIsRefusedWithItsPlace) {
  TempDir folder;
  const std::string packed = zstd(numbers(60'000));
  const auto refused = [&](const std::string& bytes) {
    write_file(folder / "a.zst", bytes);
    return error_of([&] { (void)read_all(folder / "a.zst"); });
  };
  EXPECT_THAT(refused(packed.substr(0, packed.size() / 2)), AllOf(HasSubstr("zstd data ends"), HasSubstr("truncated")));
  EXPECT_THAT(refused(packed.substr(0, packed.size() - 1)), HasSubstr("truncated"));
  EXPECT_THAT(refused(packed + "text"), HasSubstr("something other than zstd data"));
  std::string damaged = packed;
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0xFF);
  EXPECT_THAT(refused(damaged), HasSubstr("damaged zstd data at byte"));
  EXPECT_THAT(refused(zstd("text", 30)), AllOf(HasSubstr("window above 128 MiB"), HasSubstr("--long")));
}

TEST(TextInput, FilesOfOtherPackersAreRefusedByName) {
  TempDir folder;
  const auto refused = [&](const std::string& bytes) {
    write_file(folder / "a.txt", bytes);
    return error_of([&] { TextInput input(folder / "a.txt"); });
  };
  EXPECT_THAT(refused("BZh91AY&SY..."), HasSubstr("bzip2"));
  EXPECT_THAT(refused(std::string("\xFD"
                                  "7zXZ\0\0\0",
                                  8)),
              HasSubstr("xz"));
  write_file(folder / "a.jsonl.xz", std::string("\xFD"
                                                "7zXZ\0\0\0",
                                                8));
  EXPECT_THAT(error_of([&] { (void)open_document_reader(folder / "a.jsonl.xz", {}); }), HasSubstr("xz"));
  EXPECT_THAT(refused("PK\x03\x04...."), HasSubstr("zip"));
  EXPECT_THAT(refused("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
              HasSubstr("a.txt: this is a Git LFS pointer"));
  for (const char* text : {"BZhang and PK", "version https://", "version"}) {
    write_file(folder / "a.txt", text);
    EXPECT_EQ(read_all(folder / "a.txt"), text);
  }
}

}  // namespace
}  // namespace quench
