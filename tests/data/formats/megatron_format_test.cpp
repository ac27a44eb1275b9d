#include "data/formats/megatron_format.h"

#include <sys/resource.h>

#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using testing::bytes_of;
using testing::expect_error;
using testing::MegatronIndex;
using testing::TempDir;
using testing::write_file;

template <class T>
void expect_round_trip(std::uint8_t code) {
  TempDir folder;
  write_file(folder / "set.bin", bytes_of(std::vector<T>{1, 2, 3, 4, 5, 6, 100}));
  write_file(folder / "set.idx", MegatronIndex::make(code, sizeof(T), {2, 1, 4}, {0, 2, 3}).bytes());
  const auto source = open_token_file(folder / "set.bin");
  EXPECT_EQ(testing::read_all_tokens(*source), (std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 100}));
  EXPECT_EQ(testing::all_document_starts(*source), (std::vector<std::uint64_t>{0, 3}));
}

TEST(MegatronFormat, ReadsEveryIntegerType) {
  expect_round_trip<std::uint8_t>(1);
  expect_round_trip<std::int8_t>(2);
  expect_round_trip<std::int16_t>(3);
  expect_round_trip<std::int32_t>(4);
  expect_round_trip<std::int64_t>(5);
  expect_round_trip<std::uint16_t>(8);
}

TEST(MegatronFormat, OpensByEitherFileOrPrefix) {
  TempDir folder;
  write_file(folder / "set.bin", bytes_of(std::vector<std::uint16_t>{1, 2, 3}));
  write_file(folder / "set.idx", MegatronIndex::make(8, 2, {3}, {0, 1}).bytes());
  for (const char* name : {"set", "set.bin", "set.idx"}) EXPECT_EQ(open_token_file(folder / name)->size(), 3u) << name;
}

TEST(MegatronFormat, DocumentsWithoutTokensAndModesAreAccepted) {
  TempDir folder;
  write_file(folder / "set.bin", bytes_of(std::vector<std::int32_t>{1, 2, 3, 4, 5}));
  // Sequence lengths 0, 2, 0, 3; documents: {0}, {}, {1}, {2, 3}, {}; one mode a sequence.
  write_file(folder / "set.idx",
             MegatronIndex::make(4, 4, {0, 2, 0, 3}, {0, 1, 1, 2, 4, 4}).bytes() + std::string(4, '\0'));
  const auto source = open_token_file(folder / "set.bin");
  EXPECT_EQ(testing::all_document_starts(*source), (std::vector<std::uint64_t>{0, 2}));
}

TEST(MegatronFormat, ManyDocumentsCrossTheReadersBlocks) {
  TempDir folder;
  constexpr std::size_t kDocuments = 200000;
  write_file(folder / "set.bin", bytes_of(std::vector<std::uint8_t>(2 * kDocuments, 3)));
  write_file(folder / "set.idx", MegatronIndex::make(1, 1, std::vector<std::int32_t>(kDocuments, 2),
                                                     testing::iota<std::int64_t>(kDocuments + 1))
                                     .bytes());
  const auto source = open_token_file(folder / "set.idx");
  const auto starts = testing::all_document_starts(*source);
  ASSERT_EQ(starts.size(), kDocuments);
  EXPECT_EQ(starts.back(), 2 * kDocuments - 2);
}

TEST(MegatronFormat, RejectsIndexesThatDoNotFit) {
  TempDir folder;
  write_file(folder / "set.bin", bytes_of(std::vector<std::uint16_t>{1, 2, 3, 4, 5}));
  const MegatronIndex good = MegatronIndex::make(8, 2, {2, 3}, {0, 1, 2});
  const auto refuses = [&](const std::string& bytes, ErrorCode code, const std::string& part) {
    write_file(folder / "set.idx", bytes);
    expect_error(code, {"set.idx", part}, [&] { (void)open_token_file(folder / "set.bin"); });
  };
  const auto broken = [&](auto change) {
    MegatronIndex index = good;
    change(index);
    return index.bytes();
  };
  refuses(good.bytes().substr(0, 33), ErrorCode::corrupt, "33 bytes");
  refuses("N" + good.bytes().substr(1), ErrorCode::corrupt, "MMIDIDX");
  refuses(broken([](auto& index) { index.version = 2; }), ErrorCode::unsupported, "version 2");
  refuses(broken([](auto& index) { index.code = 0; }), ErrorCode::corrupt, "element code 0");
  refuses(broken([](auto& index) { index.code = 9; }), ErrorCode::corrupt, "element code 9");
  refuses(broken([](auto& index) { index.code = 6; }), ErrorCode::unsupported, "floating-point");
  refuses(good.bytes() + "abc", ErrorCode::corrupt, "do not match");
  refuses(good.bytes().substr(0, good.bytes().size() - 1), ErrorCode::corrupt, "do not match");
  refuses(broken([](auto& index) { index.lengths[1] = -3; }), ErrorCode::corrupt, "sequence 1 has length -3");
  refuses(broken([](auto& index) { index.lengths[1] = 4; }), ErrorCode::corrupt, "sequence 1 ends at byte 12");
  refuses(broken([](auto& index) { index.lengths[1] = 2; }), ErrorCode::corrupt, "do not belong together");
  refuses(broken([](auto& index) { index.offsets[1] = 6; }), ErrorCode::corrupt, "sequence 1 starts at byte 6");
  refuses(broken([](auto& index) { index.offsets[1] = 1 << 30; }), ErrorCode::corrupt, "sequence 1 starts");
  refuses(broken([](auto& index) { index.offsets[0] = -4; }), ErrorCode::corrupt, "sequence 0 starts at byte -4");
  refuses(broken([](auto& index) { index.bounds = {1, 1, 2}; }), ErrorCode::corrupt, "expected 0");
  refuses(broken([](auto& index) { index.bounds = {0, 2, 1}; }), ErrorCode::corrupt, "out of order");
  refuses(broken([](auto& index) { index.bounds = {0, 1, 3}; }), ErrorCode::corrupt, "document bound 2 is 3");
  refuses(broken([](auto& index) { index.bounds = {0, -1, 2}; }), ErrorCode::corrupt, "document bound 1 is -1");
  refuses(broken([](auto& index) { index.bounds = {0, 1}; }), ErrorCode::corrupt, "last document ends at sequence 1");
  refuses(broken([](auto& index) { index.bounds = {}; }), ErrorCode::corrupt, "0 document bounds");
  refuses(MegatronIndex::make(8, 2, {0}, {0, 1}).bytes(), ErrorCode::corrupt, "no tokens");
}

TEST(MegatronFormat, HugeCountsAreRefusedBeforeMemoryIsAllocated) {
  TempDir folder;
  write_file(folder / "set.bin", bytes_of(std::vector<std::uint16_t>{1, 2, 3, 4, 5}));
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  for (const std::uint64_t count :
       {std::uint64_t{1} << 60, std::uint64_t{1} << 62, ~std::uint64_t{0}, std::uint64_t{1} << 33}) {
    for (const int field : {18, 26}) {
      std::string bytes = MegatronIndex::make(8, 2, {2, 3}, {0, 1, 2}).bytes();
      bytes.replace(static_cast<std::size_t>(field), 8, bytes_of(count));
      write_file(folder / "set.idx", bytes);
      expect_error(ErrorCode::corrupt, {"set.idx", "do not match"}, [&] { (void)open_token_file(folder / "set.bin"); });
    }
  }
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 * 1024) << "KiB of peak resident memory";
}

}  // namespace
}  // namespace quench
