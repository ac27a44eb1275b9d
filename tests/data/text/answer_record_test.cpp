#include "data/text/record_kind.h"

#include "data/text/chat_renderer.h"
#include "data/text/document_encoder.h"
#include "data/text/record_notes.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using testing::TempDir;
using testing::write_file;

struct Answers {
  std::vector<std::string> prompts, answers;
  std::vector<bool> marks;
  std::vector<std::string> origins;
};

Answers read_answers(const std::string& lines, AnswerRecords records = AnswerRecords::pairs,
                     const std::string& name = "a.jsonl") {
  TempDir folder;
  write_file(folder / name, lines);
  const auto reader =
      open_document_reader(folder / name, {.answers = records, .chat_template = chat_template_from_string("chatml")});
  EXPECT_TRUE(reader->has_targets());
  Answers all;
  Document document;
  while (reader->next(document)) {
    std::string prompt, answer;
    for (const DocumentPiece& piece : document.pieces) (piece.target ? answer : prompt) += piece.text;
    all.prompts.push_back(prompt);
    all.answers.push_back(answer);
    all.marks.push_back(document.mark.value());
    all.origins.push_back(document.origin.substr(document.origin.rfind('/') + 1));
  }
  return all;
}

TEST(PreferenceRecord, PairsOfTexts) {
  const Answers all = read_answers(R"({"prompt": "2+2=", "chosen": "4", "rejected": "5", "score": 3})"
                                   "\n"
                                   R"({"prompt": "1+1=", "chosen": "2", "rejected": "3"})");
  EXPECT_THAT(all.prompts, ElementsAre("2+2=", "2+2=", "1+1=", "1+1="));
  EXPECT_THAT(all.answers, ElementsAre("4", "5", "2", "3"));
  EXPECT_THAT(all.marks, ElementsAre(true, false, true, false));
  EXPECT_THAT(all.origins, ElementsAre("a.jsonl:1", "a.jsonl:1", "a.jsonl:2", "a.jsonl:2"));
}

TEST(PreferenceRecord, ThePromptIsTheCommonBeginningUnlessGiven) {
  const Answers words = read_answers(R"({"chosen": "The sky is blue.", "rejected": "The sky is green."})");
  EXPECT_THAT(words.prompts, ElementsAre("The sky is", "The sky is"));  // the space belongs to the next word
  EXPECT_THAT(words.answers, ElementsAre(" blue.", " green."));
  const Answers characters = read_answers(R"({"chosen": "x\u00e9", "rejected": "x\u00e8"})");  // equal first bytes
  EXPECT_THAT(characters.answers, ElementsAre("\u00e9", "\u00e8"));
  const Answers nothing = read_answers(R"({"chosen": "yes", "rejected": "no"})");
  EXPECT_THAT(nothing.prompts, ElementsAre("", ""));
}

TEST(PreferenceRecord, PairsOfMessages) {
  const std::string user = R"({"role": "user", "content": "hi"})";
  const std::string good = R"({"role": "assistant", "content": "hello"})",
                    bad = R"({"role": "assistant", "content": "go"})";
  const std::vector<std::string> records = {
      R"({"prompt": [)" + user + R"(], "chosen": [)" + good + R"(], "rejected": [)" + bad + "]}",
      R"({"chosen": [)" + user + "," + good + R"(], "rejected": [)" + user + "," + bad + "]}",
      // As HuggingFaceH4/ultrafeedback_binarized has them.
      R"({"prompt": "hi", "messages": [], "chosen": [)" + user + "," + good + R"(], "rejected": [)" + user + "," + bad +
          "]}"};
  for (const std::string& record : records) {
    const Answers all = read_answers(record);
    ASSERT_EQ(all.answers.size(), 2u) << record;
    EXPECT_THAT(all.answers[0], ::testing::StartsWith("hello")) << record;
    EXPECT_THAT(all.answers[1], ::testing::StartsWith("go")) << record;
    EXPECT_THAT(all.prompts[0], ::testing::HasSubstr("hi")) << record;
    EXPECT_EQ(all.prompts[0], all.prompts[1]) << record;
  }
}

// Questions of LLaMA-Factory and others, as in SFT records.
TEST(PreferenceRecord, AQuestionIsThePrompt) {
  const std::string answers = R"("chosen": "yes", "rejected": "no")";
  const Answers expected = read_answers(R"({"prompt": [{"role": "user", "content": "a\n\nb"}], )"
                                        R"("chosen": [{"role": "assistant", "content": "yes"}], )"
                                        R"("rejected": [{"role": "assistant", "content": "no"}]})");
  for (const char* question :
       {R"("instruction": "a", "input": "b")", R"("question": "a", "input": "b")", R"("query": "a\n\nb")",
        R"("input": "a\n\nb")", R"("instruction": "a\n\nb", "input": "")",
        R"("instruction": "a\n\nb", "input": null, "history": [])"}) {
    const Answers all = read_answers(fmt::format("{{{}, {}}}", question, answers));
    EXPECT_EQ(all.prompts, expected.prompts) << question;
    EXPECT_EQ(all.answers, expected.answers) << question;
  }
  const Answers context = read_answers(R"({"system": "s", "history": [["q", "r"]], "question": "a", )" + answers + "}");
  EXPECT_THAT(context.prompts[1],
              ::testing::AllOf(::testing::HasSubstr("system\ns<|im_end|>"), ::testing::HasSubstr("user\nq<|im_end|>"),
                               ::testing::HasSubstr("assistant\nr<|im_end|>"), ::testing::EndsWith("assistant\n")));
  EXPECT_EQ(context.answers, expected.answers);
}

TEST(PreferenceRecord, ConversationsAndTheirAnswers) {
  const std::string user = R"({"role": "user", "content": "hi"})", human = R"({"from": "human", "value": "hi"})";
  const std::string yes = R"({"role": "assistant", "content": "yes"})",
                    no = R"({"role": "assistant", "content": "no"})";
  const Answers expected =
      read_answers(fmt::format(R"({{"prompt": [{}], "chosen": [{}], "rejected": [{}]}})", user, yes, no));
  for (const std::string& record : {
           // LLaMA-Factory's
           R"({"conversations": [)" + human +
               R"(], "chosen": {"from": "gpt", "value": "yes"}, "rejected": {"from": "gpt", "value": "no"}})",
           R"({"messages": [)" + user + R"(], "chosen": "yes", "rejected": "no"})",
           // ms-swift's
           R"({"messages": [)" + user + "," + yes + R"(], "rejected_response": "no"})",
           R"({"messages": [)" + user + "," + yes + R"(], "rejected_response": [)" + no + "]}",
           R"({"messages": [)" + user + "," + yes + R"(], "rejected_messages": [)" + user + "," + no + "]}",
           std::string(R"({"query": "hi", "response": "yes", "rejected_response": "no"})"),
           std::string(R"({"instruction": "hi", "output": "yes", "rejected_response": "no"})"),
       }) {
    const Answers all = read_answers(record);
    EXPECT_EQ(all.prompts, expected.prompts) << record;
    EXPECT_EQ(all.answers, expected.answers) << record;
  }
  const Answers labels = read_answers(R"({"messages": [)" + user + "," + yes + R"(], "label": true})" + "\n" +
                                          R"({"instruction": "hi", "output": "no", "kto_tag": false})",
                                      AnswerRecords::labels);
  EXPECT_EQ(labels.answers, expected.answers);
  EXPECT_EQ(labels.prompts, expected.prompts);
  EXPECT_THAT(labels.marks, ElementsAre(true, false));
}

// As TRL's completions: all text after the prompt, not only up to the token that ends the turn.
TEST(PreferenceRecord, AnAnswerEndsWithTheText) {
  const std::string hi = R"({"role": "user", "content": "hi"})", no = R"({"role": "assistant", "content": "no"})",
                    yes = R"({"role": "assistant", "content": "yes"})";
  const Answers all =
      read_answers(R"({"prompt": [)" + hi + R"(], "chosen": [)" + yes + R"(], "rejected": [)" + no + "]}");
  EXPECT_THAT(all.answers, ElementsAre("yes<|im_end|>\n", "no<|im_end|>\n"));
  // Built-in template and a Jinja one; a text of the user is no answer, nor is a message with the flag.
  const std::unique_ptr<Tokenizer> bytes = load_tokenizer("bytes");
  const auto renderer = std::make_shared<const ChatRenderer>(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }};\n{% endfor %}{% if not add_generation_prompt %}END{% "
      "endif %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}",
      "a.jinja", *bytes, "");
  const auto targets = [&](const std::string& messages) {
    TempDir folder;
    write_file(folder / "a.jsonl", R"({"prompt": [)" + hi + R"(], "completion": )" + messages + R"(, "label": true})");
    const auto reader =
        open_document_reader(folder / "a.jsonl", {.answers = AnswerRecords::labels, .chat_renderer = renderer});
    Document document;
    EXPECT_TRUE(reader->next(document));
    std::string text;
    for (const DocumentPiece& piece : document.pieces) {
      if (piece.target) text += piece.text;
      for (const auto& [begin, end] : piece.target_bytes) text += piece.text.substr(begin, end - begin) + "|";
    }
    return text;
  };
  EXPECT_THAT(targets("[" + yes + "]"), ::testing::EndsWith("yes;\nEND|"));
  EXPECT_THAT(targets("[" + yes + "," + hi + "]"), ::testing::Not(::testing::HasSubstr("END")));
  EXPECT_THAT(targets("[" + yes + "," + hi + R"(,{"role": "assistant", "content": "b", "train": false}])"),
              ::testing::Not(::testing::HasSubstr("END")));
}

TEST(PreferenceRecord, LabelsOfAnswersAndOfPairs) {
  const Answers all = read_answers(R"({"prompt": "a", "completion": "b", "label": true})"
                                   "\n"
                                   R"({"prompt": "a", "completion": "c", "label": 0})"
                                   "\n"
                                   R"({"prompt": "p", "chosen": "x", "rejected": "y"})"
                                   "\n"
                                   R"({"prompt": "a", "completion": "d", "label": "True"})"
                                   "\n"
                                   R"({"prompt": "a", "completion": "e", "label": "0"})",
                                   AnswerRecords::labels);
  EXPECT_THAT(all.answers, ElementsAre("b", "c", "x", "y", "d", "e"));
  EXPECT_THAT(all.marks, ElementsAre(true, false, true, false, true, false));
}

// Spreadsheets write TRUE.
TEST(PreferenceRecord, LabelsOfTablesInAnySpelling) {
  std::string rows = "prompt,completion,label\n";
  for (const char* label : {"TRUE", "FALSE", "tRUE", "Yes", "no", "1.0", "0.0"}) rows += fmt::format("a,b,{}\n", label);
  EXPECT_THAT(read_answers(rows, AnswerRecords::labels, "a.csv").marks,
              ElementsAre(true, false, true, true, false, true, false));
  expect_error(ErrorCode::corrupt, {"a.csv:2", "label", "maybe"},
               [] { read_answers("prompt,completion,label\na,b,maybe\n", AnswerRecords::labels, "a.csv"); });
}

std::string quoted_cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.insert(at, 1, '"');
  return "\"" + text + "\"";
}

TEST(PreferenceRecord, CellsOfATableHoldListsOfMessagesInJson) {
  const std::string prompt = R"([{"role": "user", "content": "q"}])";
  const std::string good = R"([{"role": "assistant", "content": "a"}])",
                    bad = R"([{"role": "assistant", "content": "b"}])";
  const auto row = [](const std::vector<std::string>& cells) {
    std::string text;
    for (const std::string& cell : cells) text += (text.empty() ? "" : ",") + quoted_cell(cell);
    return text + "\n";
  };
  const Answers lines =
      read_answers(fmt::format(R"({{"prompt": {}, "chosen": {}, "rejected": {}}})", prompt, good, bad));
  const Answers table =
      read_answers("prompt,chosen,rejected\n" + row({prompt, good, bad}), AnswerRecords::pairs, "a.csv");
  EXPECT_EQ(table.prompts, lines.prompts);
  EXPECT_EQ(table.answers, lines.answers);
  const std::string whole = prompt.substr(0, prompt.size() - 1) + ", ";
  EXPECT_EQ(read_answers("prompt,chosen,rejected\n" + row({"q", whole + good.substr(1), whole + bad.substr(1)}),
                         AnswerRecords::pairs, "a.csv")
                .answers,
            lines.answers);
  EXPECT_EQ(read_answers("prompt,completion,label\n" + row({prompt, good, "1"}) + row({prompt, bad, "0"}),
                         AnswerRecords::labels, "a.csv")
                .answers,
            lines.answers);
  // Lists that are no messages are texts; a list of messages is one under a text as prompt, too.
  EXPECT_THAT(read_answers("prompt,chosen,rejected\n" + row({"[1]", "[{\"a\": 1}]", "[{'role_of': 1}]"}),
                           AnswerRecords::pairs, "a.csv")
                  .answers,
              ElementsAre("[{\"a\": 1}]", "[{'role_of': 1}]"));
  EXPECT_THAT(
      read_answers("prompt,completion,label\n" + row({"As JSON", good, "1"}), AnswerRecords::labels, "a.csv").answers,
      ElementsAre(good));
  const auto refused = [&](const std::vector<std::string>& cells, const std::vector<std::string>& words) {
    expect_error(ErrorCode::corrupt, words,
                 [&] { read_answers("prompt,chosen,rejected\n" + row(cells), AnswerRecords::pairs, "a.csv"); });
  };
  refused({"[{'role': 'user', 'content': 'q'}]", good, bad}, {"a.csv:2", "\"prompt\"", "json.dumps"});
  refused({prompt, good.substr(0, good.size() - 4), bad}, {"a.csv:2", "\"chosen\"", "json.dumps"});
  refused({prompt, "a", "b"}, {"prompt is a list of messages"});
}

TEST(PreferenceRecord, BadRecordsAreNamedWithFileAndLine) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {R"({"prompt": "a", "chosen": "x", "rejected": "x"})", "chosen and rejected are equal"},
      {R"({"prompt": "a", "chosen": "x", "rejected": ""})", "the rejected answer is empty"},
      {R"({"prompt": "a", "chosen": " \n", "rejected": "x"})", "the chosen answer is empty"},
      {R"({"prompt": "a", "chosen": [], "rejected": [{"role": "assistant", "content": "x"}]})",
       "the chosen answer is empty"},
      {R"({"prompt": "a", "chosen": [{"role": "assistant", "content": " "}], "rejected": [{"role": "user"}]})",
       "the chosen answer is empty"},
      {R"({"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "x"}], )"
       R"("rejected": [{"role": "assistant", "content": "x", "name": null}]})",
       "equal under the chat template"},
      {R"({"prompt": [{"role": "user", "content": "a"}], "chosen": "x", "rejected": "y"})",
       "prompt is a list of messages, but chosen and rejected are texts"},
      {R"({"prompt": 3, "chosen": "x", "rejected": "y"})", "field \"prompt\" is integer"},
      {R"({"messages": [{"role": "user", "content": "a"}], "rejected_response": "x"})",
       "the last of the \"messages\" is no answer of the assistant"},
      {R"({"instruction": 3, "chosen": "x", "rejected": "y"})", "field \"instruction\" is integer"},
      {R"({"chosen": "ab", "rejected": "abc"})", "empty after the beginning that both answers share"},
      {R"({"prompt": "a", "completion": "x", "label": true})", "set preference.loss to kto"},
      {R"({"text": "x"})", "no field \"chosen\", expected {\"prompt\", \"chosen\", \"rejected\"}"},
      {R"({"prompt": "a", "chosen": 1, "rejected": "x"})", "field \"chosen\" is integer"},
      {R"({"chosen": "x", "rejected": [{"role": "assistant", "content": "x"}]})", "both must be texts"},
      {R"({"chosen": [{"role": "user", "content": "x"}], "rejected": [{"role": "user", "content": "y"}]})",
       "begin with different messages"}};
  for (const auto& [record, reason] : bad)
    expect_error(ErrorCode::corrupt, {"a.jsonl:2: ", reason}, [&] {
      (void)read_answers(R"({"prompt": "2+2=", "chosen": "4", "rejected": "5"})" + ("\n" + record));
    });
  const std::vector<std::pair<std::string, std::string>> labels = {
      {R"({"prompt": "a", "completion": "x"})", "no field \"label\""},
      {R"({"prompt": "a", "completion": "x", "label": "good"})", "expected true, 1, false or 0"},
      {R"({"prompt": "a", "completion": "", "label": true})", "the completion is empty"},
      {R"({"completion": "x", "label": true})",
       "no field \"prompt\", expected {\"prompt\", \"completion\", \"label\"}"},
      {R"({"prompt": "a", "completion": [{"role": "assistant", "content": "x"}], "label": true})",
       "must both be texts"}};
  for (const auto& [record, reason] : labels)
    expect_error(ErrorCode::corrupt, {"a.jsonl:1: ", reason},
                 [&] { (void)read_answers(record, AnswerRecords::labels); });
}

// Keys of texts, once per record; those of chats are noted by the renderer.
TEST(PreferenceRecord, KeysThatNothingReadsAreCounted) {
  TempDir folder;
  const auto unused = [&](const std::string& record, AnswerRecords kind) {
    write_file(folder / "a.jsonl", record);
    const auto notes = std::make_shared<RecordNotes>();
    const auto reader = open_document_reader(folder / "a.jsonl", {.answers = kind, .notes = notes});
    Document document;
    while (reader->next(document)) {
    }
    return notes->record_keys;
  };
  using Counts = RecordNotes::Counts;
  EXPECT_EQ(unused(R"({"system": "s", "topic": "q", "chosen": "a", "rejected": "b", "weight": 1, "gone": null})",
                   AnswerRecords::pairs),
            (Counts{{"system", 1}, {"topic", 1}}));
  EXPECT_EQ(unused(R"({"prompt": "q", "chosen": "a", "rejected": "b"})", AnswerRecords::pairs), Counts());
  EXPECT_EQ(unused(R"({"prompt": "q", "completion": "a", "label": true, "system": "s"})", AnswerRecords::labels),
            (Counts{{"system", 1}}));
}

TEST(PreferenceRecord, TheMarkIsTheFirstTokensFlag) {
  const std::unique_ptr<Tokenizer> bytes = load_tokenizer("bytes");
  const DocumentEncoder encoder(*bytes, {.eos = EosPolicy::automatic});
  for (const bool mark : {true, false})
    for (const std::string& prompt : {std::string("ab"), std::string()}) {
      std::vector<Document> documents(1);
      documents[0].mark = mark;
      if (!prompt.empty()) documents[0].pieces.push_back({.text = prompt, .target = false});
      documents[0].pieces.push_back({.text = "xyz", .joined = !prompt.empty()});
      const EncodedDocument encoded = encoder.encode(documents).front();
      ASSERT_EQ(encoded.targets.size(), encoded.ids.size());
      EXPECT_EQ(encoded.targets.front(), mark ? 1 : 0);
      EXPECT_EQ(encoded.targets.back(), 1);
    }
}

}  // namespace
}  // namespace quench
