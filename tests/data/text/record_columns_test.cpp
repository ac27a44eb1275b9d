#include "data/text/record_columns.h"

#include "data/text/document_reader.h"
#include "data/text/text_format.h"
#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using testing::TempDir;
using testing::write_file;

std::vector<std::string> texts_with(const std::string& bytes, ReaderOptions options,
                                    const std::string& name = "a.jsonl") {
  const TempDir folder;
  write_file(folder / name, bytes);
  options.chat_template = chat_template_from_string("chatml");
  const auto reader = open_document_reader(folder / name, options);
  std::vector<std::string> documents;
  for (Document document; reader->next(document);) {
    std::string& text = documents.emplace_back();
    for (const DocumentPiece& piece : document.pieces)
      text += piece.target && !piece.special ? "[" + piece.text + "]" : piece.text;
  }
  return documents;
}

TEST(RecordColumns, OtherNamesReadAsTheirOwn) {
  EXPECT_THAT(texts_with(R"({"body": "a", "text": "b"})", {.columns = {{"text", "body"}}}), ElementsAre("[a]"));
  EXPECT_THAT(texts_with(R"({"data": {"body": "a"}})", {.columns = {{"text", "data.body"}}}), ElementsAre("[a]"));
  EXPECT_THAT(texts_with(R"({"a.b": "x", "a": {"b": "y"}})", {.columns = {{"text", "a.b"}}}), ElementsAre("[x]"));
  EXPECT_THAT(texts_with(R"({"body": "a"})", {.field = "words", .columns = {{"text", "body"}}}), ElementsAre("[a]"));
  EXPECT_THAT(texts_with(R"({"q": "2+2=", "a": "4", "messages": 5, "text": "t"})",
                         {.columns = {{"prompt", "q"}, {"completion", "a"}}}),
              ElementsAre("2+2=[4]"));
  // Names that change places.
  EXPECT_THAT(texts_with(R"({"prompt": "4", "completion": "2+2="})",
                         {.columns = {{"prompt", "completion"}, {"completion", "prompt"}}}),
              ElementsAre("2+2=[4]"));
  const std::string chat = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";
  const std::string renamed = R"({"text": "t", "talk": [{"role": "user", "content": "a"}, )"
                              R"({"from": "gpt", "value": "b"}]})";
  EXPECT_EQ(texts_with(renamed, {.columns = {{"messages", "talk"}}}), texts_with(chat, {}));
  EXPECT_THAT(texts_with("body,n\na,1\n", {.columns = {{"text", "body"}}}, "a.csv"), ElementsAre("[a]"));
}

TEST(RecordColumns, ANameThatNoRecordHasIsRefusedWithTheNearest) {
  expect_error(ErrorCode::corrupt, {"a.jsonl:1", "\"bodi\"", "\"body\", \"id\"", "did you mean \"body\""}, [] {
    texts_with(R"({"body": "a", "id": 1})", {.columns = {{"text", "bodi"}}});
  });
  expect_error(ErrorCode::bad_config, {"a.csv", "\"bodi\"", "\"body\", \"id\"", "did you mean \"body\""}, [] {
    texts_with("body,id\na,1\n", {.columns = {{"text", "bodi"}}}, "a.csv");
  });
  const std::string chat = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";
  expect_error(ErrorCode::bad_config, {"a.jsonl", "tools", "\"functions\"", "\"messages\""}, [&] {
    texts_with(chat + "\n" + chat, {.columns = {{"tools", "functions"}}});
  });
}

TEST(RecordColumns, NamesAreChecked) {
  expect_error(ErrorCode::bad_config, {"--columns", "\"txt\"", "did you mean \"text\""},
               [] { (void)columns_from_words({"txt=body"}, "--columns"); });
  expect_error(ErrorCode::bad_config, {"one of them"},
               [] { (void)columns_from_words({"text=a,messages=b"}, "--columns"); });
  for (const char* word : {"text", "text=", "=a", ""})
    expect_error(ErrorCode::bad_config, {"--columns", "NAME=COLUMN"},
                 [&] { (void)columns_from_words({word}, "--columns"); });
  EXPECT_EQ(columns_from_words({"prompt=q,completion=a", "system=s"}, "--columns"),
            (ColumnNames{{"prompt", "q"}, {"completion", "a"}, {"system", "s"}}));
}

TEST(RecordColumns, ListsOfMessagesInOtherForms) {
  const std::string chat = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";
  EXPECT_EQ(
      texts_with(R"({"messages": {"role": ["user", "assistant"], "content": ["a", "b"], "name": [null, null]}})", {}),
      texts_with(chat, {}));
  EXPECT_EQ(texts_with(R"({"conversations": {"from": ["human", "gpt"], "value": ["a", "b"]}})", {}),
            texts_with(chat, {}));
  EXPECT_EQ(texts_with("messages\n\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"a\"\"}, {\"\"role\"\": "
                       "\"\"assistant\"\", \"\"content\"\": \"\"b\"\"}]\"\n",
                       {}, "a.csv"),
            texts_with(chat, {}));
  expect_error(ErrorCode::corrupt, {"a.csv:2", "json.dumps"},
               [] { texts_with("messages\n\"[{'role': 'user'}]\"\n", {}, "a.csv"); });
}

TEST(ChatCompletion, TheCompletionOfAPairOfMessageListsIsTrainedOn) {
  const std::string pair =
      R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, )"
      R"({"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})";
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "a"}, )"
      R"({"role": "assistant", "content": "b", "train": false}, {"role": "user", "content": "c"}, )"
      R"({"role": "assistant", "content": "d"}]})";
  EXPECT_EQ(texts_with(pair, {}), texts_with(chat, {}));
  std::string whole = chat;
  whole.erase(whole.find(", \"train\": false"), 16);
  EXPECT_EQ(texts_with(pair, {.train_on = TrainOn::all}), texts_with(whole, {.train_on = TrainOn::all}));
  expect_error(ErrorCode::corrupt, {"completion", "expected array"},
               [&] { texts_with(R"({"prompt": [{"role": "user", "content": "a"}], "completion": "b"})", {}); });
  expect_error(ErrorCode::corrupt, {"completion is empty"},
               [&] { texts_with(R"({"prompt": [{"role": "user", "content": "a"}], "completion": []})", {}); });
  // Its columns by name.
  EXPECT_EQ(
      texts_with(R"({"chosen": [{"role": "assistant", "content": "d"}], "q": [{"role": "user", "content": "c"}]})",
                 {.columns = {{"prompt", "q"}, {"completion", "chosen"}}}),
      texts_with(R"({"messages": [{"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})", {}));
}

}  // namespace
}  // namespace quench
