#include "data/files/csv_source.h"

#include <ctime>
#include <fstream>

#include "tests/data/files/record_fixtures.h"
#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::records_of;
using testing::TempDir;
using testing::write_file;

std::vector<std::string> csv_records(const std::string& bytes, const std::string& name = "a.csv",
                                     std::uint64_t limit = 1000) {
  const TempDir folder;
  write_file(folder / name, bytes);
  const auto open = name.ends_with(".tsv") ? open_tsv_source : open_csv_source;
  const auto source = open(folder / name, {.max_record_bytes = limit});
  std::vector<std::string> records = records_of(*source);
  EXPECT_EQ(source->consumed(), bytes.size());
  return records;
}

TEST(CsvSource, CellsInQuotesHoldSeparatorsLineBreaksAndQuotes) {
  EXPECT_THAT(
      csv_records("text,id\nplain,1\n\"a, \"\"b\"\"\nc\",2\n\n\"\",\r\n"),
      ElementsAre(R"({"text":"plain","id":"1"})", R"({"text":"a, \"b\"\nc","id":"2"})", R"({"text":"","id":""})"));
  EXPECT_THAT(csv_records("\xEF\xBB\xBFtext\r\n\"a\r\nb\"\r\nlast"),
              ElementsAre(R"({"text":"a\r\nb"})", R"({"text":"last"})"));
  EXPECT_THAT(csv_records("text\tn\na, b\t1\n", "a.tsv"), ElementsAre(R"({"text":"a, b","n":"1"})"));
}

TEST(CsvSource, AFirstLineWithoutCommasMayBeSeparatedOtherwise) {
  EXPECT_THAT(csv_records("a;b\n1,5;x\n"), ElementsAre(R"({"a":"1,5","b":"x"})"));
  EXPECT_THAT(csv_records("a\tb\n1\tx\n"), ElementsAre(R"({"a":"1","b":"x"})"));
  EXPECT_THAT(csv_records("\"a;c\",b\n1,x\n"), ElementsAre(R"({"a;c":"1","b":"x"})"));
}

TEST(CsvSource, RowsThatCannotBeReadLeaveTheOthers) {
  EXPECT_THAT(csv_records("a,b\n1\n1,2,3\n\"x\"y,2\n\xFF,1\n" + std::string(300, 'x') + ",1\n" +
                              std::string("\0,1\n", 4) + "4,5\n",
                          "a.csv", 200),
              ElementsAre("! 1 cells for 2 columns", "! 3 cells for 2 columns", HasSubstr("after the closing quote"),
                          "! column 1: byte 0xff is not valid UTF-8", "! a row of more than 200 bytes",
                          HasSubstr("column 1: a zero byte"), R"({"a":"4","b":"5"})"));
}

TEST(CsvSource, ACarriageReturnEndsARow) {
  EXPECT_THAT(csv_records("a,b\r1,\"x\ny\"\r\r2,z\r"), ElementsAre(R"({"a":"1","b":"x\ny"})", R"({"a":"2","b":"z"})"));
  EXPECT_THAT(csv_records("a;b\r1,5;x"), ElementsAre(R"({"a":"1,5","b":"x"})"));
  const TempDir folder;
  write_file(folder / "a.csv", "a\r\"x\ry\"\r1,2\r");
  const auto source = open_csv_source(folder / "a.csv", {});
  Record record;
  while (source->next(record)) continue;
  EXPECT_THAT(record.origin, ::testing::EndsWith("a.csv:4"));
}

// Bytes past the limit cost no more than others: 400 MB here.
TEST(CsvSource, RowsPastTheLimitAreSkippedInLittleTime) {
  const TempDir folder;
  const std::string cells(std::size_t{1} << 20, ','), text(std::size_t{1} << 20, 'x');
  {
    std::ofstream file(folder / "a.csv", std::ios::binary);
    file << "a,b\n";
    for (int i = 0; i < 200; ++i) file << text;
    for (int i = 0; i < 200; ++i) file << cells;
    file << "\n1,2\n";
  }
  const auto source = open_csv_source(folder / "a.csv", {.max_record_bytes = 1000});
  const std::clock_t start = std::clock();  // time of the processor
  EXPECT_THAT(records_of(*source), ElementsAre("! a row of more than 1000 bytes", R"({"a":"1","b":"2"})"));
  EXPECT_LT(std::clock() - start, 20 * CLOCKS_PER_SEC);
}

TEST(CsvSource, FilesWithoutColumnsAreRefused) {
  expect_error(ErrorCode::corrupt, {"a.csv", "names of its columns"}, [] { (void)csv_records(""); });
  expect_error(ErrorCode::corrupt, {"a.csv", "two columns", "\"a\""}, [] { (void)csv_records("a,b,a\n"); });
  expect_error(ErrorCode::corrupt, {"a.csv:2", "not closed"}, [] { (void)csv_records("a\n\"open\nb\n"); });
  expect_error(ErrorCode::unsupported, {"a.csv", "UTF-16"}, [] {
    (void)csv_records(
        "\xFF\xFE"
        "a");
  });
}

}  // namespace
}  // namespace quench
