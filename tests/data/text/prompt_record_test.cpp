#include "data/sampling/packing.h"
#include "data/text/record_kind.h"

#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;
using testing::TempDir;
using testing::write_file;

// Prompt and fields of each record.
std::vector<std::pair<std::string, std::string>> read_prompts(const std::string& lines) {
  TempDir folder;
  write_file(folder / "a.jsonl", lines);
  const auto reader = open_document_reader(
      folder / "a.jsonl", {.answers = AnswerRecords::prompts, .chat_template = chat_template_from_string("chatml")});
  std::vector<std::pair<std::string, std::string>> all;
  Document document;
  while (reader->next(document)) {
    auto& [prompt, fields] = all.emplace_back();
    for (const DocumentPiece& piece : document.pieces) (piece.target ? fields : prompt) += piece.text;
  }
  return all;
}

TEST(PromptRecord, FieldsBesideThePromptAreKept) {
  const auto read =
      read_prompts("{\"prompt\": \"2 + 2 =\", \"answer\": 4, \"level\": \"easy\"}\n{\"prompt\": \"x\"}\n");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].first, "2 + 2 =");
  EXPECT_EQ(Json::parse(read[0].second), Json::parse(R"({"answer": 4, "level": "easy"})"));
  EXPECT_EQ(read[1].second, "{}");
}

TEST(PromptRecord, MessagesEndInTheHeaderOfAnAnswer) {
  const std::string expected = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
  for (const char* record : {R"({"prompt": [{"role": "user", "content": "hi"}], "answer": "a"})",
                             R"({"messages": [{"role": "user", "content": "hi"}], "answer": "a"})",
                             R"({"conversations": [{"from": "human", "value": "hi"}], "answer": "a"})"}) {
    const auto read = read_prompts(record);
    ASSERT_EQ(read.size(), 1u) << record;
    EXPECT_EQ(read[0].first, expected) << record;
    EXPECT_EQ(read[0].second, R"({"answer":"a"})") << record;
  }
}

TEST(PromptRecord, RecordsWithoutAPromptAreNamed) {
  expect_error(ErrorCode::corrupt, {"a.jsonl:1", "no field \"prompt\""}, [] { read_prompts(R"({"answer": "a"})"); });
  expect_error(ErrorCode::corrupt, {"the prompt is empty"}, [] { read_prompts(R"({"prompt": ""})"); });
  expect_error(ErrorCode::corrupt, {"field \"prompt\" is"}, [] { read_prompts(R"({"prompt": 3})"); });
  expect_error(ErrorCode::corrupt, {"the assistant's"}, [] {
    read_prompts(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})");
  });
}

}  // namespace
}  // namespace quench
