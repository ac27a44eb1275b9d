#include "data/files/json_source.h"

#include "tests/data/files/record_fixtures.h"
#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::records_of;
using ::testing::StartsWith;
using testing::TempDir;
using testing::write_file;

std::vector<std::string> json_records(const std::string& bytes, std::uint64_t limit = 1000) {
  const TempDir folder;
  write_file(folder / "a.json", bytes);
  const auto source = open_json_source(folder / "a.json", {.max_record_bytes = limit});
  std::vector<std::string> records = records_of(*source);
  EXPECT_EQ(source->consumed(), bytes.size());
  return records;
}

TEST(JsonSource, AnArrayALineAndValuesOverSeveralLinesAreTheSameRecords) {
  const std::vector<std::string> expected = {R"({"a":[1,{"b":"]}\","}]})", R"({"a":null})"};
  for (const std::string text : {"[{\"a\": [1, {\"b\": \"]}\\\",\"}]}, {\"a\": null}]",
                                 " [\n  {\n    \"a\": [1, {\"b\": \"]}\\\",\"}]\n  },\n  {\"a\":null}\n]\n\n",
                                 "\xEF\xBB\xBF[{\"a\":[1,{\"b\":\"]}\\\",\"}]},{\"a\":null}]",
                                 "{\"a\": [1, {\"b\": \"]}\\\",\"}]}\n\n{\"a\": null}\n",
                                 "{\n\"a\": [1, {\"b\": \"]}\\\",\"}]\n}\n{\n  \"a\": null\n}\n"})
    EXPECT_EQ(json_records(text), expected) << text;
  EXPECT_THAT(json_records("[]"), ElementsAre());
  EXPECT_THAT(json_records(""), ElementsAre());
  EXPECT_THAT(json_records("[ \"a, b]\", 3 ,true,[4]]"), ElementsAre("\"a, b]\"", "3", "true", "[4]"));
}

TEST(JsonSource, ARecordOfAnArrayThatCannotBeReadLeavesTheOthers) {
  EXPECT_THAT(json_records("[{\"a\":1},\n{\"a\": 1, \"a\": 2},\n{\"b\":\n nul},\n{\"c\": \"" + std::string(300, 'x') +
                               "\"}, {\"d\":4}]",
                           200),
              ElementsAre(R"({"a":1})", StartsWith("! column "), StartsWith("! line 2 of the record, column"),
                          "! a record of more than 200 bytes", R"({"d":4})"));
}

TEST(JsonSource, AnArrayThatIsNoneIsRefusedWithItsLine) {
  const auto refused = [](const std::string& text, const std::string& line, const std::string& reason) {
    expect_error(ErrorCode::corrupt, {"a.json:" + line + ": ", reason}, [&] { (void)json_records(text); });
  };
  refused("[{\"a\":1},\n", "2", "truncated");
  refused("[{\"a\":1},\n{\"b\": \"", "2", "truncated");
  refused("[{\"a\":1}\n{\"b\":2}]", "2", "expected \",\" or \"]\"");
  refused("[{\"a\":1},\n]", "2", "after the comma");
  refused("[{\"a\":1}]\n\n{}", "3", "data after the end of");
  refused("{\n\"a\": 1", "2", "truncated");
}

TEST(JsonSource, RecordsKnowTheLineTheyBeginOn) {
  const TempDir folder;
  write_file(folder / "a.json", "[\n{\"a\":1},\n\n{\"b\":\n2}, {\"c\":3}]");
  const auto source = open_json_source(folder / "a.json", {});
  std::vector<std::string> origins;
  for (Record record; source->next(record);) origins.push_back(record.origin.substr(record.origin.rfind('/') + 1));
  EXPECT_THAT(origins, ElementsAre("a.json:2", "a.json:4", "a.json:5"));
}

}  // namespace
}  // namespace quench
