#include <gtest/gtest.h>

#include <clocale>
#include <locale>

#include "tests/testing.h"
#include "train/checkpoint/hash.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/manifest_rules.h"

namespace quench {
namespace {

// Two ranks: 'w' is split 3 + 2 rows, rank 1 has 'b' alone.
Manifest two_rank_manifest() {
  Manifest manifest;
  manifest.save_uuid = "0b0e5a63-9a3b-4c9e-8d0a-0123456789ab";
  manifest.world_size = 2;
  manifest.state.step = 12;
  manifest.state.tokens_seen = std::int64_t{1} << 40;
  manifest.state.samples = 77;
  manifest.state.tool_version = "0.1.0";
  manifest.state.config = Json::Object{{"lr", 3e-4}, {"name", "caf\u00e9 \"x\"\n"}, {"betas", Json::Array{0.9, 0.95}}};
  manifest.state.rng = Json::Object{{"seed", ~std::uint64_t{0}}, {"counter", -1}};
  manifest.state.data = Json::Object{{"file", "a.bin"}};
  manifest.files = {{"rank-00000.safetensors", 0, 100 + 24, 100, 0x1234},
                    {"rank-00001.safetensors", 1, 96 + 16 + 3, 96, 0xFEDCBA9876543210u}};
  manifest.tensors.push_back({"w", DType::f32, {5, 2}, {{0, {0, 3}, 100, 24, 1}, {1, {3, 2}, 96, 16, 2}}});
  manifest.tensors.push_back({"b", DType::u8, {3}, {{1, {0, 3}, 112, 3, 3}}});
  return manifest;
}

std::string fault_of(const Manifest& manifest) {
  return find_manifest_fault(manifest);
}

TEST(CheckpointManifest, ReadsBackWhatItWrote) {
  const Manifest manifest = two_rank_manifest();
  const std::string text = manifest.dump();
  const Manifest read = Manifest::parse(text, "m");
  EXPECT_EQ(read.save_uuid, manifest.save_uuid);
  EXPECT_EQ(read.world_size, 2);
  EXPECT_EQ(read.state.step, 12);
  EXPECT_EQ(read.state.tokens_seen, std::int64_t{1} << 40);
  EXPECT_EQ(read.state.samples, 77);
  EXPECT_EQ(read.state.tool_version, "0.1.0");
  EXPECT_EQ(read.state.config, manifest.state.config);
  EXPECT_EQ(read.state.rng, manifest.state.rng);
  EXPECT_EQ(read.state.data, manifest.state.data);
  ASSERT_EQ(read.files.size(), 2u);
  EXPECT_EQ(read.files[1].name, "rank-00001.safetensors");
  EXPECT_EQ(read.files[1].header_xxh3, 0xFEDCBA9876543210u);
  ASSERT_EQ(read.tensors.size(), 2u);
  EXPECT_EQ(read.tensors[0].shape, (Shape{5, 2}));
  EXPECT_EQ(read.tensors[0].shards[1].slice, (ShardSlice{3, 2}));
  EXPECT_EQ(read.tensors[0].shards[1].offset, 96u);
  EXPECT_EQ(read.dump(), text);
}

TEST(CheckpointManifest, EveryChangedBitIsFound) {
  const std::string text = two_rank_manifest().dump();
  for (std::size_t i = 0; i < text.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      ASSERT_THROW((void)Manifest::parse(changed, "m"), Error) << "byte " << i << " bit " << bit;
    }
}

TEST(CheckpointManifest, EveryTruncationAndExtensionIsFound) {
  const std::string text = two_rank_manifest().dump();
  for (std::size_t size = 0; size < text.size(); ++size)
    ASSERT_THROW((void)Manifest::parse(text.substr(0, size), "m"), Error) << size;
  for (const char* tail : {" ", "\n", "}", std::string_view("\0", 1).data()})
    ASSERT_THROW((void)Manifest::parse(text + std::string(tail, 1), "m"), Error);
}

TEST(CheckpointManifest, HashIsThatOfTheFileWithZeroedDigits) {
  const std::string text = two_rank_manifest().dump();
  const std::string prefix = "{\n  \"manifest_xxh3\": \"";
  ASSERT_TRUE(text.starts_with(prefix));
  std::string zeroed = text;
  zeroed.replace(prefix.size(), 16, 16, '0');
  StreamHash hash;
  hash.update(zeroed);
  EXPECT_EQ(text.substr(prefix.size(), 16), format_hash(hash.digest()));
}

TEST(CheckpointManifest, HashMatchesTheReferenceImplementation) {
  StreamHash empty;
  EXPECT_EQ(format_hash(empty.digest()), "2d06800538d394c2");  // xxhsum -H3 of an empty file
  EXPECT_EQ(parse_hash("2d06800538d394c2"), 0x2d06800538d394c2u);
  for (const char* bad : {"", "2d06800538d394c", "2d06800538d394c20", "2D06800538D394C2", "2d06800538d394cg"})
    EXPECT_FALSE(parse_hash(bad)) << bad;
}

TEST(CheckpointManifest, NewerFormatIsRefusedByName) {
  std::string text = two_rank_manifest().dump();
  const std::string version = "\"format_version\": 1";
  text.replace(text.find(version), version.size(), "\"format_version\": 3");
  stamp_manifest_hash(text);
  try {
    (void)Manifest::parse(text, "step-12/manifest.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_STREQ(
        error.what(),
        "step-12/manifest.json: was written in checkpoint format 3 by Quench 0.1.0; this program reads formats "
        "up to 2; use the newer program");
  }
}

struct DecimalComma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(CheckpointManifest, DoesNotDependOnTheLocale) {
  const std::string text = two_rank_manifest().dump();
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new DecimalComma));
  std::setlocale(LC_ALL, "de_DE.UTF-8");  // where the machine has it
  const std::string written = two_rank_manifest().dump();
  const std::string read = Manifest::parse(text, "m").dump();
  std::setlocale(LC_ALL, "C");
  std::locale::global(before);
  EXPECT_EQ(written, text);
  EXPECT_EQ(read, text);
}

struct Breach {
  const char* what;
  void (*apply)(Manifest&);
  const char* message;
};

class CheckpointManifestRule : public ::testing::TestWithParam<Breach> {};

TEST_P(CheckpointManifestRule, IsEnforcedByWriterAndReader) {
  Manifest manifest = two_rank_manifest();
  EXPECT_EQ(fault_of(manifest), "");
  GetParam().apply(manifest);
  EXPECT_NE(fault_of(manifest).find(GetParam().message), std::string::npos) << fault_of(manifest);
  EXPECT_THROW((void)manifest.dump(), Error);
}

INSTANTIATE_TEST_SUITE_P(
    All, CheckpointManifestRule,
    ::testing::Values(
        Breach{"parent", [](Manifest& m) { m.files[0].name = "../x"; }, "not a valid name"},
        Breach{"absolute", [](Manifest& m) { m.files[0].name = "/etc/passwd"; }, "not a valid name"},
        Breach{"hidden", [](Manifest& m) { m.files[0].name = ".x"; }, "not a valid name"},
        Breach{"nul", [](Manifest& m) { m.files[0].name = std::string("a\0b", 3); }, "not a valid name"},
        Breach{"manifest", [](Manifest& m) { m.files[0].name = "manifest.json"; }, "not a valid name"},
        Breach{"twice", [](Manifest& m) { m.files[1].name = m.files[0].name; }, "listed twice"},
        Breach{"rank", [](Manifest& m) { m.files[1].rank = 2; }, "rank 2, but the world size is 2"},
        Breach{"rank_twice", [](Manifest& m) { m.files[1].rank = 0; }, "rank 0 has two"},
        Breach{"header", [](Manifest& m) { m.files[0].header_size = 125; }, "header of 125 bytes"},
        Breach{"world", [](Manifest& m) { m.world_size = 0; }, "world size is 0"},
        Breach{"step", [](Manifest& m) { m.state.step = -1; }, "step -1"},
        Breach{"no_name", [](Manifest& m) { m.tensors[0].name = ""; }, "not a valid tensor name"},
        Breach{"long_name", [](Manifest& m) { m.tensors[0].name = std::string(513, 'x'); }, "not a valid tensor name"},
        Breach{"control", [](Manifest& m) { m.tensors[0].name = "a\nb"; }, "not a valid tensor name"},
        Breach{"utf8", [](Manifest& m) { m.tensors[0].name = "a\xff"; }, "not a valid tensor name"},
        Breach{"tensor_twice", [](Manifest& m) { m.tensors[1].name = "w"; }, "'w' is listed twice"},
        Breach{"negative", [](Manifest& m) { m.tensors[0].shape[1] = -2; }, "impossible shape"},
        Breach{"huge", [](Manifest& m) { m.tensors[0].shape[1] = std::int64_t{1} << 49; }, "impossible shape"},
        Breach{"wraps_to_zero",
               [](Manifest& m) {
                 m.tensors[0].shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
               },
               "no valid size"},
        Breach{"gap", [](Manifest& m) { m.tensors[0].shards[1].slice.start = 4; }, "do not continue at row 3"},
        Breach{"overlap", [](Manifest& m) { m.tensors[0].shards[1].slice.start = 2; }, "do not continue at row 3"},
        Breach{"missing_rows", [](Manifest& m) { m.tensors[0].shards.pop_back(); }, "only 3 are stored"},
        Breach{"more_rows", [](Manifest& m) { m.tensors[0].shards[1].slice.length = 3; }, "do not continue"},
        Breach{"overflowing_rows", [](Manifest& m) { m.tensors[0].shards[1].slice.length = INT64_MAX; },
               "do not continue"},
        Breach{"bytes", [](Manifest& m) { m.tensors[0].shards[0].size = 20; }, "cannot have 20 bytes"},
        Breach{"file", [](Manifest& m) { m.tensors[0].shards[0].file = 2; }, "data file number 2"},
        Breach{"hole", [](Manifest& m) { m.files[0].size += 1; }, "belong to no tensor"},
        Breach{"beyond", [](Manifest& m) { m.files[0].size -= 1; }, "does not continue"},
        Breach{"shifted", [](Manifest& m) { m.tensors[1].shards[0].offset += 1; }, "does not continue at byte 112"},
        Breach{"nothing", [](Manifest& m) { m.tensors.clear(); }, "belong to no tensor"}),
    [](const auto& instance) { return instance.param.what; });

// The text of the valid manifest with one replacement, hash made right again.
std::string replaced(const std::string& from, const std::string& to) {
  std::string text = two_rank_manifest().dump();
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  stamp_manifest_hash(text);
  return text;
}

TEST(CheckpointManifest, WrongMembersAreNamed) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"\"quench.checkpoint\"", "\"other\"", "format is \"other\""},
      {"\"step\": 12", "\"step\": \"12\"", "expected integer"},
      {"\"step\": 12", "\"step\": 12.0", "expected integer"},
      {"\"step\": 12", "\"step\": -1", "\"step\" is -1"},
      {"\"step\": 12,\n", "", "no key \"step\""},
      {"\"rng\": {\"seed\":18446744073709551615,\"counter\":-1}", "\"rng\": []", "expected object"},
      {"\"dtype\":\"f32\"", "\"dtype\":\"float32\"", "dtype \"float32\" of tensor 'w' is unknown"},
      {"\"shape\":[5,2]", "\"shape\":[5,2,1,1,1,1,1,1,1]", "has 9 dimensions"},
      {"\"shape\":[5,2]", "\"shape\":5", "expected array"},
      {"\"header_xxh3\":\"0000000000001234\"", "\"header_xxh3\":\"1234\"", "16 lower-case hex digits"},
      {"\"name\":\"b\"", "\"name\":\"w\"", "'w' is listed twice"},
      {"\"files\": [", "\"step\": 1, \"files\": [", "step"},
      {"\"tensors\": [", "\"tensors\": [[", "manifest.json"}};
  for (const auto& [from, to, message] : cases) {
    try {
      (void)Manifest::parse(replaced(from, to), "manifest.json");
      ADD_FAILURE() << to;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
      EXPECT_TRUE(std::string(error.what()).starts_with("manifest.json")) << error.what();
    }
  }
}

TEST(CheckpointManifest, OtherFilesAreRecognisedAsSuch) {
  for (const char* text :
       {"", "{}", "version https://git-lfs.github.com/spec/v1\n", "<html>", "{\n  \"manifest_xxh3\": \"\"\n}"})
    EXPECT_THROW((void)Manifest::parse(text, "m"), Error) << text;
}

TEST(CheckpointManifest, RowBytes) {
  EXPECT_EQ(row_bytes({4, 3}, DType::f32, 2), 24u);
  EXPECT_EQ(row_bytes({}, DType::i64, 1), 8u);
  EXPECT_EQ(row_bytes({4, 6}, DType::i4, 3), 9u);
  EXPECT_EQ(row_bytes({6}, DType::f4_e2m1, 4), 2u);
  EXPECT_THROW((void)row_bytes({6}, DType::f4_e2m1, 3), Error);
  EXPECT_THROW((void)row_bytes({std::int64_t{1} << 40, std::int64_t{1} << 40}, DType::u8, std::int64_t{1} << 40),
               Error);
}

}  // namespace
}  // namespace quench
