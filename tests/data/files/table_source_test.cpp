// Files that pyarrow wrote (make_tables.py).

#include "data/files/table_source.h"

#include <sys/resource.h>

#include <fstream>
#include <sstream>

#include "core/system/file.h"
#include "data/files/json_source.h"
#include "data/text/text_format.h"
#include "tests/data/files/record_fixtures.h"
#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::write_file;

namespace fs = std::filesystem;

fs::path table(const std::string& name) {
  return testing::source_dir() / "tests/data/files/tables" / name;
}

std::vector<Json> values_of(const fs::path& path) {
  const auto source = open_records(path);
  std::vector<Json> values;
  for (Record record; source->next(record);) {
    EXPECT_EQ(record.fault, "") << record.origin;
    values.push_back(record.value);
  }
  EXPECT_EQ(source->consumed(), fs::file_size(path)) << path;
  return values;
}

std::vector<std::string> texts_of(const std::vector<Json>& values) {
  std::vector<std::string> texts;
  for (const Json& value : values) texts.push_back(value.dump());
  return texts;
}

TEST(TableSource, ChatsReadAsTheirJsonLines) {
  const std::vector<std::string> expected = texts_of(values_of(table("chats.jsonl")));
  ASSERT_EQ(expected.size(), 3u);
  for (const char* name :
       {"chats.parquet", "chats-zstd.parquet", "chats-gzip.parquet", "chats-brotli.parquet", "chats-lz4.parquet",
        "chats-none.parquet", "chats.arrow", "chats-zstd.arrow", "chats.feather"})
    EXPECT_EQ(texts_of(values_of(table(name))), expected) << name;
}

TEST(TableSource, ValuesOfEveryType) {
  for (const auto& [name, lines] : {std::pair("types.parquet", "types.jsonl"), std::pair("views.arrow", "views.jsonl"),
                                    std::pair("times.parquet", "times.jsonl"), std::pair("times.arrow", "times.jsonl"),
                                    std::pair("call.parquet", "call.jsonl")}) {
    const std::vector<Json> values = values_of(table(name)), expected = values_of(table(lines));
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], expected[i]) << values[i].dump();
  }
}

// What the library datasets stores where the values of a column have no common type.
TEST(TableSource, JsonTextReadsAsItsValue) {
  const std::vector<std::string> expected = texts_of(values_of(table("json.jsonl")));
  for (const char* name : {"json.parquet", "json-plain.parquet", "json.arrow"})
    EXPECT_EQ(texts_of(values_of(table(name))), expected) << name;
}

TEST(TableSource, RowsAreCountedOverRowGroups) {
  const auto source = open_parquet_source(table("chats.parquet"), {});
  EXPECT_THAT(source->columns(), ElementsAre("id", "messages", "source"));
  std::uint64_t before = 0;
  std::vector<std::string> origins;
  for (Record record; source->next(record); before = source->consumed()) {
    EXPECT_GT(source->consumed(), before);
    origins.push_back(record.origin.substr(record.origin.rfind('/') + 1));
  }
  EXPECT_THAT(origins, ElementsAre("chats.parquet, row 1", "chats.parquet, row 2", "chats.parquet, row 3"));
}

TEST(TableSource, TheFirstBytesTellTheFormat) {
  const TempDir folder;
  const std::vector<std::string> expected = texts_of(values_of(table("chats.jsonl")));
  for (const char* name : {"chats.parquet", "chats.arrow", "chats.feather"})
    for (const char* other : {"blob", "a.jsonl", "a.parquet", "a.arrow"}) {
      write_file(folder / other, read_file(table(name), 1 << 20));
      EXPECT_EQ(texts_of(values_of(folder / other)), expected) << name << " as " << other;
    }
  const ReaderOptions named{.format = text_formats().find("jsonl")};
  expect_error(ErrorCode::bad_config, {"a.parquet", "set to jsonl", "arrow", "auto"},
               [&] { (void)open_document_reader(folder / "a.parquet", named); });
}

TEST(TableSource, OtherFilesAreRefused) {
  const TempDir folder;
  const auto refused = [&](const std::string& bytes, std::vector<std::string> words) {
    words.push_back("a.parquet");
    write_file(folder / "a.parquet", bytes);
    expect_error(ErrorCode::corrupt, words, [&] { (void)values_of(folder / "a.parquet"); });
  };
  refused("", {"no Parquet file", "empty"});
  refused("{\"text\": 1}\n", {"no Parquet file", "looks like text"});
  refused("version https://git-lfs.github.com/spec/v1\n", {"Git LFS pointer", "git lfs pull"});
  refused("PARE1234", {"encrypted Parquet file"});
  refused("\x1f\x8b\x08...", {"compressed by gzip or zstd", "decompress it"});
  refused(std::string("\x01\0\x02\0", 4), {"no known format"});
  const std::string parquet = read_file(table("chats.parquet"), 1 << 20);
  refused(parquet.substr(0, parquet.size() / 2), {"Parquet file cannot be read"});
  std::string damaged = parquet;
  for (std::size_t i = 4; i < 1500; ++i) damaged[i] = static_cast<char>(damaged[i] ^ 0x5A);
  refused(damaged, {"Parquet file cannot be read"});
  const std::string stream = read_file(table("chats.arrow"), 1 << 20);
  write_file(folder / "b.arrow", stream.substr(0, stream.size() / 2));
  expect_error(ErrorCode::corrupt, {"b.arrow", "Arrow file cannot be read"},
               [&] { (void)values_of(folder / "b.arrow"); });
  write_file(folder / "c.arrow", "[1]");
  expect_error(ErrorCode::corrupt, {"c.arrow", "no Arrow file"}, [&] { (void)values_of(folder / "c.arrow"); });
}

// Whatever is changed in a file that is stored as it is read, its offsets lead nowhere else.
TEST(TableSource, DamagedArrowFilesAreReadOrRefused) {
  const TempDir folder;
  std::size_t refusals = 0;
  for (const char* name : {"chats.arrow", "views.arrow", "chats.feather", "chats.parquet"}) {
    const std::string whole = read_file(table(name), 1 << 20);
    for (std::size_t at = 0; at < whole.size(); at += 11) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ 0xFF);
      write_file(folder / "a.arrow", bytes);
      try {
        const auto source = open_records(folder / "a.arrow");
        for (Record record; source->next(record);) {
        }
      } catch (const Error&) {
        ++refusals;
      }
    }
  }
  EXPECT_GT(refusals, 100u);
}

// The records, or "! " and the reason why one cannot be read.
std::vector<std::string> records_in(const std::string& name) {
  const auto source = open_records(table(name));
  return testing::records_of(*source);
}

TEST(TableSource, DictionaryIndicesAreBounded) {
  for (const std::string name : {"dictionary", "dictionary-list", "dictionary-struct"})
    for (const auto& [kind, index] : {std::pair("-bit", "index 3"), std::pair("-heap", "index 200")}) {
      const std::vector<std::string> records = records_in(name + kind + ".parquet");
      EXPECT_FALSE(records.empty());
      for (const std::string& record : records)
        EXPECT_THAT(record, AllOf(HasSubstr("! column \""), HasSubstr(index),
                                  HasSubstr("out of bounds: the dictionary "
                                            "has 3 values")))
            << name << kind;
    }
}

TEST(TableSource, NothingOfAMapVanishes) {
  EXPECT_THAT(records_in("map.arrow"), ElementsAre(R"({"map":{"a":1,"b":null}})", HasSubstr("key \"a\" twice")));
  EXPECT_THAT(records_in("late.arrow"), ElementsAre(HasSubstr("! a date"), R"({"when":"1970-01-01"})"));
}

// A message without a part of it would be trained as if it were whole.
TEST(TableSource, AColumnIsReadWholeOrNotAtAll) {
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(records_in("bytes.parquet"),
              ElementsAre(R"({"text":"0","image":{"bytes":"text"},"messages":[{"role":"user","content":"text"}]})",
                          R"({"text":"1","image":null,"messages":null})"));
  EXPECT_THAT(records_in("union.arrow"), ElementsAre(R"({"text":"a"})", R"({"text":"b"})"));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("row 2: column messages holds bytes that are no text"));
  EXPECT_THAT(log, HasSubstr("mixed (union)"));
}

TEST(TableSource, TwoColumnsOfOneNameAreRefused) {
  for (const auto& [name, what] : {std::pair("twice.parquet", "two columns have the name \"text\""),
                                   std::pair("twice.arrow", "two columns have the name \"text\""),
                                   std::pair("twice-nested.arrow", "two fields of a struct have the name \"key\"")})
    expect_error(ErrorCode::corrupt, {name, what}, [&] { (void)records_in(name); });
}

// In kilobytes.
long peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(TableSource, MemoryDoesNotFollowWhatAFilePromises) {
  const long before = peak_memory();
  for (const char* name : {"bomb.parquet", "bomb.arrow"})
    expect_error(ErrorCode::corrupt, {name, "more memory than the limit of 256 MiB and 16 times"},
                 [&] { (void)records_in(name); });
  EXPECT_THAT(records_in("nulls.arrow"), ElementsAre("! a row of more than 67108864 bytes"));
  const auto source = open_records(table("repeated.parquet"));
  int rows = 0;
  for (Record record; source->next(record); ++rows) {
    ASSERT_EQ(record.value.at("text").as_string().size(), std::size_t{1} << 20) << record.fault;
    ASSERT_THAT(record.origin, ::testing::EndsWith(fmt::format("row {}", rows + 1)));
  }
  EXPECT_EQ(rows, 4000);
  EXPECT_LT(peak_memory() - before, 700000);
}

TEST(TableSource, RowsAboveTheLimitLeaveTheOthers) {
  const auto source = open_records(table("chats.parquet"), {.max_record_bytes = 300});
  std::vector<std::string> faults;
  for (Record record; source->next(record);) faults.push_back(record.fault);
  EXPECT_THAT(faults, ElementsAre("a row of more than 300 bytes", "", ""));
}

}  // namespace
}  // namespace quench
