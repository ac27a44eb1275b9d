#include "data/text/record_reader.h"

#include <sys/resource.h>
#include <unistd.h>

#include "data/text/record_kind.h"
#include "data/text/text_format.h"
#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;
using testing::TempDir;
using testing::write_file;

struct Reading {
  std::vector<Document> documents;
  ReadReport report;
};

Reading read(const std::string& bytes, ReaderOptions options = {}) {
  TempDir folder;
  write_file(folder / "a.jsonl", bytes);
  if (options.chat_template == nullptr) options.chat_template = chat_template_from_string("llama3");
  const auto reader = open_document_reader(folder / "a.jsonl", options);
  Reading reading;
  Document document;
  while (reader->next(document)) reading.documents.push_back(document);
  reading.report = reader->report();
  EXPECT_EQ(reader->consumed(), bytes.size());
  return reading;
}

std::vector<std::string> texts(const Reading& reading) {
  std::vector<std::string> result;
  for (const Document& document : reading.documents) result.push_back(document.pieces.at(0).text);
  return result;
}

TEST(JsonlReader, TextRecords) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts(read("{\"text\":\"a\"}\n{\"text\":\"b\\u0000\\n\", \"id\": 3}")),
            (Texts{"a", std::string("b\0\n", 3)}));
  EXPECT_EQ(texts(read("\xEF\xBB\xBF{\"text\":\"a\"}\r\n\r\n  \n{\"text\":\"b\"}\r\n")), (Texts{"a", "b"}));
  EXPECT_EQ(texts(read("{\"body\":\"x\",\"text\":\"y\"}", {.field = "body"})), Texts{"x"});
  const Reading blank = read("{\"text\":\"\"}\n{\"text\":\"a\"}");
  EXPECT_EQ(texts(blank), Texts{"a"});
  EXPECT_EQ(blank.report.empty, 1u);
  EXPECT_EQ(blank.documents[0].origin.substr(blank.documents[0].origin.rfind('/') + 1), "a.jsonl:2");
}

TEST(JsonlReader, EveryBadRecordHasItsLineAndReason) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"{\"text\": \"a\"", "column"},
      {"{\"text\": \"\xFF\"}", "column"},
      {"{\"text\": \"a\" + std::string(1, 0)}", "column"},
      {std::string("{\"text\": \"a\0b\"}", 15), "column"},
      {"{\"other\": \"a\"}", "no field \"text\""},
      {"{\"text\": null}", "is null, expected string"},
      {"{\"text\": 5}", "is integer, expected string"},
      {"{\"text\": [\"a\"]}", "is array, expected string"},
      {"[1]", "the record is array"},
      {"7", "the record is integer"},
      {"{\"text\": \"a\", \"text\": \"b\"}", "column"},
      {"{\"text\": \"" + std::string(300, 'x') + "\"}", "more than 200 bytes"},
      {std::string(150, '['), "column"}};
  std::string all = "{\"text\":\"first\"}\n";
  for (const auto& [line, reason] : bad) {
    const ReaderOptions options{.record = record_kinds().find("text"), .max_document_bytes = 200};
    expect_error(ErrorCode::corrupt, {"a.jsonl:2: ", reason},
                 [&] { read("{\"text\":\"first\"}\n" + line + "\n", options); });
    all += line + "\n";
  }
  all += "{\"text\":\"last\"}";
  const Reading reading = read(all, {.on_bad_record = BadRecord::skip, .max_document_bytes = 200});
  EXPECT_EQ(texts(reading), (std::vector<std::string>{"first", "last"}));
  EXPECT_EQ(reading.report.bad_records, bad.size());
  EXPECT_EQ(reading.report.first_bad.size(), 10u);
  EXPECT_THAT(reading.report.first_bad[4], ::testing::HasSubstr("a.jsonl:6: no field"));
}

TEST(JsonlReader, NothingUsableIsAnError) {
  expect_error(ErrorCode::corrupt, {"a.jsonl", "no record"}, [] { read(""); });
  expect_error(ErrorCode::corrupt, {"a.jsonl", "no record"}, [] { read("{}\n", {.on_bad_record = BadRecord::skip}); });
  expect_error(ErrorCode::corrupt, {"a.jsonl: no record", "a.jsonl:2: the record is null"},
               [] { read("\nnull\n{}\n", {.on_bad_record = BadRecord::skip}); });
  expect_error(
      ErrorCode::corrupt,
      {"a.jsonl:1", "no field \"text\", \"messages\"", "; the record has \"question\", \"answer\"; data.columns names",
       "--columns prompt=question,completion=answer"},
      [] { read("{\"question\":1,\"answer\":2}\n"); });
  expect_error(ErrorCode::corrupt, {"a.jsonl:3", "array", "truncated"}, [] { read("[\r\n{\"text\": \"a\"}\n"); });
}

// A line far above the limit costs a block of memory, not its size.
TEST(JsonlReader, AHugeLineIsSkippedInBoundedMemory) {
  TempDir folder;
  const auto path = folder / "a.jsonl";
  write_file(path, "{\"text\":\"a\"}\n");
  ASSERT_EQ(::truncate(path.c_str(), 200 << 20), 0);  // the second line: 200 MiB of zero bytes without an end
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  const auto reader = open_document_reader(path, {.on_bad_record = BadRecord::skip, .max_document_bytes = 1 << 20});
  Document document;
  EXPECT_TRUE(reader->next(document));
  EXPECT_FALSE(reader->next(document));
  EXPECT_EQ(reader->report().bad_records, 1u);
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 32 * 1024) << "KiB";
}

TEST(JsonlReader, TokenRecords) {
  const Reading reading = read(
      "{\"input_ids\":[5,6,7,8],\"labels\":[-100,6,7,-100],\"attention_mask\":[1,1,1,0]}\n"
      "{\"input_ids\":[1,2]}\n"
      "{\"input_ids\":[3],\"labels\":null}\n"
      "{\"input_ids\":[]}\n");
  ASSERT_EQ(reading.documents.size(), 3u);
  EXPECT_TRUE(reading.documents[0].complete);
  EXPECT_EQ(reading.documents[0].pieces[0].ids, (std::vector<std::int32_t>{5, 6, 7}));
  EXPECT_EQ(reading.documents[0].pieces[0].targets, (std::vector<std::uint8_t>{0, 1, 1}));
  EXPECT_EQ(reading.documents[1].pieces[0].targets, (std::vector<std::uint8_t>{1, 1}));
  EXPECT_EQ(reading.report.empty, 1u);
  const auto refuses = [](const std::string& line, const std::string& part) {
    expect_error(ErrorCode::corrupt, {"a.jsonl:1", part}, [&] { read(line, {.vocab_size = 100}); });
  };
  refuses("{\"input_ids\":[1,100]}", "input_ids[1] is 100");
  refuses("{\"input_ids\":[-1]}", "input_ids[0] is -1");
  refuses("{\"input_ids\":[1.5]}", "input_ids[0] is number");
  refuses("{\"input_ids\":\"1\"}", "is string, expected array");
  refuses("{\"input_ids\":[1,2],\"labels\":[1]}", "1 labels for 2");
  refuses("{\"input_ids\":[1,2],\"labels\":[2,-100]}", "labels[0] is 2");
}

TEST(JsonlReader, ChatRecords) {
  const Reading messages = read(
      R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":[{"type":"text","text":"Q"},{"type":"text","text":"?"}]},{"role":"assistant","content":"A"}]})");
  ASSERT_EQ(messages.documents.size(), 1u);
  EXPECT_TRUE(messages.documents[0].complete);
  const Reading sharegpt = read(
      R"({"conversations":[{"from":"system","value":"S"},{"from":"human","value":"Q?"},{"from":"gpt","value":"A"}]})");
  ASSERT_EQ(sharegpt.documents[0].pieces.size(), messages.documents[0].pieces.size());
  for (std::size_t i = 0; i < sharegpt.documents[0].pieces.size(); ++i) {
    EXPECT_EQ(sharegpt.documents[0].pieces[i].text, messages.documents[0].pieces[i].text);
    EXPECT_EQ(sharegpt.documents[0].pieces[i].target, messages.documents[0].pieces[i].target);
  }
  const auto refuses = [](const std::string& line, const std::string& part) {
    expect_error(ErrorCode::corrupt, {"a.jsonl:1", part}, [&] { read(line); });
  };
  refuses(R"({"messages":[]})", "no assistant message");
  refuses(R"({"messages":[{"role":"user","content":"Q"}]})", "no assistant message");
  refuses(R"({"messages":[{"content":"Q"}]})", "message 0: no field \"role\"");
  refuses(R"({"messages":[{"role":"user","content":null}]})", "message 0: field \"content\" is null");
  refuses(R"({"messages":[{"role":"bot","content":"Q"}]})", "role 'bot'");
  refuses(R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":" \n"}]})",
          "message 1: the assistant's turn is empty");
  refuses(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", "not of type text");
  refuses(R"({"messages":"x"})", "is string, expected array");
  refuses(R"({"messages":["x"]})", "message 0 is string");
}

// The first record decides what the others must be.
TEST(JsonlReader, RecordsOfOneFileAreOfOneKind) {
  expect_error(ErrorCode::corrupt, {"a.jsonl:2", "no field \"text\""},
               [] { read("{\"text\":\"a\"}\n{\"input_ids\":[1]}\n"); });
}

TEST(DocumentReader, Formats) {
  TempDir folder;
  write_file(folder / "a.dat", "x");
  expect_error(ErrorCode::bad_config, {"a.dat", "set the format"},
               [&] { (void)open_document_reader(folder / "a.dat", {}); });
  EXPECT_TRUE(open_document_reader(folder / "a.dat", {.format = text_formats().find("text")}));
  expect_error(ErrorCode::not_found, {"none.txt"}, [&] { (void)open_document_reader(folder / "none.txt", {}); });
}

}  // namespace
}  // namespace quench
