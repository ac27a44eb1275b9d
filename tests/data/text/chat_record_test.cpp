// Chat records: columns next to the messages, older names, flags, and the keys that nothing reads.

#include "data/text/document_encoder.h"
#include "data/text/document_reader.h"
#include "tests/data/sampling/token_fixtures.h"
#include "tests/data/tokenizer/tokenizer_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;
using testing::TempDir;
using testing::write_file;

constexpr const char* kCallingTemplate =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}CALL "
    "{{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

class ChatRecordForms : public ::testing::Test {
 protected:
  // The text of a file's records.
  std::vector<std::string> read(const std::string& lines, ReaderOptions options = {}) {
    write_file(folder_ / "a.jsonl", lines);
    write_file(folder_ / "t.jinja", kCallingTemplate);
    if (options.chat_template == nullptr && options.chat_template_file.empty())
      set_chat_template(options, (folder_ / "t.jinja").string());
    options.notes = notes_ = std::make_shared<RecordNotes>();
    resolve_chats(options, *tokenizer_);
    const auto reader = open_document_reader(folder_ / "a.jsonl", options);
    std::vector<Document> documents;
    for (Document document; reader->next(document);) documents.push_back(document);
    std::vector<std::string> texts;
    trained_.clear();
    encoded_ = DocumentEncoder(*tokenizer_, {.eos = EosPolicy::none}).encode(documents);
    for (const EncodedDocument& document : encoded_) {
      texts.push_back(tokenizer_->decode(document.ids));
      std::vector<std::int32_t> targets;
      for (std::size_t i = 0; i < document.ids.size(); ++i)
        if (document.targets.empty() || document.targets[i] != 0) targets.push_back(document.ids[i]);
      trained_.push_back(tokenizer_->decode(targets));
    }
    return texts;
  }
  // The text of one record, which may stand in several lines.
  std::string one(std::string record, const ReaderOptions& options = {}) {
    std::ranges::replace(record, '\n', ' ');
    return read(record, options).at(0);
  }

  static std::string turn(const std::string& role, const std::string& text) {
    return "<|im_start|>" + role + "\n" + text + "<|im_end|>\n";
  }

  TempDir folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = testing::with_special_tokens(
      *load_tokenizer(testing::golden_dir() / "tokenizer"), {"<|im_start|>", "<|im_end|>", "<think>", "</think>"});
  std::shared_ptr<RecordNotes> notes_;
  std::vector<std::string> trained_;
  std::vector<EncodedDocument> encoded_;
};

std::string record_with(const std::string& more, const std::string& answer = "") {
  return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a")" + answer + "}]" +
         more + "}";
}

// ms-swift's words for a question and its answer.
TEST_F(ChatRecordForms, AQueryAndItsResponseAreAChat) {
  EXPECT_EQ(one(R"({"system": "S", "history": [["a", "b"]], "query": "Add 1 2", "response": "3"})"),
            turn("system", "S") + turn("user", "a") + turn("assistant", "b") + turn("user", "Add 1 2") +
                turn("assistant", "3"));
  EXPECT_EQ(trained_.at(0), "b<|im_end|>3<|im_end|>");
  expect_error(ErrorCode::corrupt, {"\"response\"", "expected string"},
               [&] { (void)one(R"({"query": "q", "response": ["a"]})"); });
}

// OLMo 3: calls are text, results come from the environment, and the template writes both as they are.
TEST_F(ChatRecordForms, CallsAsTextAndTheEnvironmentReachTheTemplate) {
  write_file(folder_ / "olmo.jinja",
             "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}{% if m.functions %}<functions>"
             "{{ m.functions }}</functions>{% endif %}{% if m.function_calls %}<function_calls>{{ m.function_calls }}"
             "</function_calls>{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
             "{% endif %}");
  ReaderOptions options;
  set_chat_template(options, (folder_ / "olmo.jinja").string());
  const std::string record = R"json({"messages": [{"role": "system", "content": "S", "functions": "[f]"},
    {"role": "user", "content": "q"}, {"role": "assistant", "content": null, "function_calls": "f(x=1)"},
    {"role": "environment", "content": "2"}, {"role": "assistant", "content": "two", "function_calls": null}]})json";
  EXPECT_EQ(one(record, options), turn("system", "S<functions>[f]</functions>") + turn("user", "q") +
                                      turn("assistant", "<function_calls>f(x=1)</function_calls>") +
                                      turn("environment", "2") + turn("assistant", "two"));
  EXPECT_EQ(trained_.at(0), "<function_calls>f(x=1)</function_calls><|im_end|>two<|im_end|>");
  expect_error(ErrorCode::corrupt, {"message 1: the assistant's message is empty"}, [&] {
    (void)one(R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "", "function_calls": ""}]})",
              options);
  });
}

TEST_F(ChatRecordForms, SystemIsAMessage) {
  const std::string said = turn("system", "S") + turn("user", "q") + turn("assistant", "a");
  EXPECT_EQ(one(record_with(R"(, "system": "S")")), said);
  EXPECT_EQ(one(record_with(R"(, "system": "")")), turn("user", "q") + turn("assistant", "a"));
  EXPECT_EQ(
      one(R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}], "system": "S"})"),
      said);
  EXPECT_EQ(one(R"({"instruction": "q", "output": "a", "system": "S"})"), said);
  EXPECT_EQ(one(R"({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}],
                    "system": "S"})"),
            said);
  const auto messages = [](const char* system) {
    return fmt::format(R"({{"system": "S", "messages": [{{"role": "system", "content": "{}"}},
      {{"role": "user", "content": "q"}}, {{"role": "assistant", "content": "a"}}]}})",
                       system);
  };
  EXPECT_EQ(one(messages("S")), said);
  expect_error(ErrorCode::corrupt, {"a.jsonl:1", "\"system\"", "differ"}, [&] { (void)one(messages("T")); });
}

TEST_F(ChatRecordForms, OlderCallsAreToolCalls) {
  EXPECT_EQ(one(R"({"functions": [{"name": "f", "parameters": {}}], "messages": [{"role": "user", "content": "w?"},
    {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{\"x\": 1}"}},
    {"role": "function", "name": "f", "content": "r"}, {"role": "assistant", "content": "b", "function_call": null}]})"),
            turn("user", "w?") + turn("assistant", R"(CALL f {"x": 1})") + turn("tool", "r") + turn("assistant", "b"));
  EXPECT_EQ(trained_.at(0), "CALL f {\"x\": 1}<|im_end|>b<|im_end|>");
  EXPECT_EQ(notes_->record_keys, (RecordNotes::Counts{{"tools", 1}}));
  for (const auto& [line, what] : std::vector<std::pair<std::string, std::string>>{
           {record_with("", R"(, "function_call": {"arguments": "{}"})"), "tool_calls[0] names no function"},
           {record_with("", R"(, "function_call": {"name": "f"}, "tool_calls": [{"name": "f"}])"), "\"function_call\""},
           {record_with(R"(, "tools": [{"name": "f"}], "functions": [{"name": "g"}])"), "\"functions\""}})
    expect_error(ErrorCode::corrupt, {"a.jsonl:1", what}, [&] { (void)read(line); });
}

// Llama 3.1's template asks `tools is not none` and `'tool_calls' in message`.
TEST_F(ChatRecordForms, EmptyListsAreNoToolsAndNoCalls) {
  write_file(folder_ / "asks.jinja",
             "{% if tools is not none %}TOOLS{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
             "{% if 'tool_calls' in m %}CALL{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}");
  ReaderOptions options;
  set_chat_template(options, (folder_ / "asks.jinja").string());
  const std::string expected = turn("user", "q") + turn("assistant", "a");
  const auto text = [&](const std::string& record) {
    write_file(folder_ / "b.jsonl", record);
    ReaderOptions resolved = options;
    resolve_chats(resolved, *tokenizer_);
    const auto reader = open_document_reader(folder_ / "b.jsonl", resolved);
    Document document;
    EXPECT_TRUE(reader->next(document));
    std::string all;
    for (const DocumentPiece& piece : document.pieces) all += piece.text;
    return all;
  };
  for (const char* more :
       {R"(, "tools": [])", R"(, "tools": "[]")", R"(, "functions": [])", R"(, "tools": [], "functions": [])"})
    EXPECT_EQ(text(record_with(more)), expected) << more;
  for (const char* calls : {R"(, "tool_calls": [])", R"(, "tool_calls": "[]")", R"(, "tool_calls": null)"})
    EXPECT_EQ(text(record_with("", calls)), expected) << calls;
  EXPECT_EQ(text(record_with(R"(, "tools": [{"name": "f"}])")), "TOOLS" + expected);
}

TEST_F(ChatRecordForms, UnknownSpeakersAreNamedWithTheKnownOnes) {
  expect_error(ErrorCode::corrupt, {"a.jsonl:1", "message 1", "\"from\" is \"bot\"; known: human, user, gpt"}, [&] {
    (void)read(R"({"conversations": [{"from": "human", "value": "q"}, {"from": "bot", "value": "a"}]})");
  });
}

TEST_F(ChatRecordForms, IpythonIsATool) {
  EXPECT_EQ(one(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
    {"role": "ipython", "content": "r"}, {"role": "assistant", "content": "b"}]})"),
            turn("user", "q") + turn("assistant", "a") + turn("tool", "r") + turn("assistant", "b"));
}

TEST_F(ChatRecordForms, FlagsHaveManyNames) {
  const auto first = [](const std::string& flag) {
    return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "bad", )" + flag +
           R"(}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "good"}]})";
  };
  for (const char* flag :
       {R"("train": false)", R"("training": false)", R"("trainable": 0)", R"("loss": false)", R"("loss": 0)",
        R"("loss": "false")", R"("weight": 0.0)", R"("loss_weight": 0)", R"("loss_mask": 0)", R"("learn": false)",
        R"("masked": true)", R"("masked": 1)", R"("mask": true)", R"("ignore_loss": true)"}) {
    (void)read(first(flag));
    EXPECT_EQ(trained_.at(0), "good<|im_end|>") << flag;
    EXPECT_TRUE(notes_->message_keys.empty()) << flag;
  }
  for (const char* flag : {R"("train": true)", R"("loss": 1)", R"("weight": null)", R"("masked": false)"}) {
    (void)read(first(flag));
    EXPECT_EQ(trained_.at(0), "bad<|im_end|>good<|im_end|>") << flag;
  }
  for (const char* flag : {R"("loss": 0.5)", R"("mask": false)", R"("mask": 0)", R"("train": true, "masked": true)",
                           R"("weight": "high")"})
    expect_error(ErrorCode::corrupt, {"a.jsonl:1", "message 1"}, [&] { (void)read(first(flag)); });
  // Flags of a record.
  EXPECT_EQ(read(record_with(R"(, "train": false)") + "\n" + record_with("")).size(), 1U);
  EXPECT_EQ(notes_->left_out, 1U);
  EXPECT_EQ(read(record_with(R"(, "weight": 0.3)")).size(), 1U);
  EXPECT_EQ(notes_->record_keys, (RecordNotes::Counts{{"weight", 1}}));
}

TEST_F(ChatRecordForms, KeysThatNothingReadsAreCounted) {
  (void)read(record_with(R"(, "id": 3, "meta": {"a": 1}, "gone": null)", R"(, "rating": 5, "other": null)") + "\n" +
             record_with(R"(, "id": 4)"));
  EXPECT_EQ(notes_->record_keys, (RecordNotes::Counts{{"id", 2}, {"meta", 1}}));
  EXPECT_EQ(notes_->message_keys, (RecordNotes::Counts{{"rating", 1}}));
  const std::vector<std::string> warnings = notes_->warnings();
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_THAT(warnings[0], ::testing::HasSubstr(R"("id" (2 records), "meta" (1 record))"));
  EXPECT_THAT(warnings[1], ::testing::HasSubstr(R"("rating" (1 message))"));
  (void)read(R"({"text": "t", "url": "u"})");
  EXPECT_EQ(notes_->record_keys, (RecordNotes::Counts{{"url", 1}}));
  (void)read(R"({"prompt": "p", "completion": "c", "system": "s"})");
  EXPECT_EQ(notes_->record_keys, (RecordNotes::Counts{{"system", 1}}));
  // Written templates read roles and contents.
  (void)read(record_with(R"(, "documents": [{"text": "d"}], "enable_thinking": true)", R"(, "reasoning_content": "r")"),
             {.chat_template = chat_template_from_string("chatml")});
  EXPECT_EQ(notes_->record_keys, (RecordNotes::Counts{{"documents", 1}, {"enable_thinking", 1}}));
  EXPECT_EQ(notes_->message_keys, (RecordNotes::Counts{{"reasoning_content", 1}}));
}

TEST_F(ChatRecordForms, TextsThatTheTemplateLeavesOutAreCounted) {
  write_file(folder_ / "drops.jinja",
             "{% for m in messages %}{% if m.role != 'system' %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}");
  ReaderOptions options;
  set_chat_template(options, (folder_ / "drops.jinja").string());
  write_file(folder_ / "b.jsonl",
             record_with(R"(, "system": "S")",
                         R"(, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}])"));
  options.notes = std::make_shared<RecordNotes>();
  resolve_chats(options, *tokenizer_);
  const auto reader = open_document_reader(folder_ / "b.jsonl", options);
  Document document;
  EXPECT_TRUE(reader->next(document));
  EXPECT_EQ(options.notes->unwritten, (RecordNotes::Counts{{"content", 1}, {"tool_calls", 1}}));
}

TEST_F(ChatRecordForms, HistoryOfAlpaca) {
  EXPECT_EQ(one(R"({"instruction": "q", "input": "i", "output": "a", "history": [["h", "g"]]})"),
            turn("user", "h") + turn("assistant", "g") + turn("user", "q\n\ni") + turn("assistant", "a"));
  expect_error(ErrorCode::corrupt, {"history[0]"},
               [&] { (void)read(R"({"instruction": "q", "output": "a", "history": ["h"]})"); });
}

TEST_F(ChatRecordForms, CompletionsOfChats) {
  const std::string record =
      R"({"prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "old"},
          {"role": "user", "content": "r"}], "completion": [{"role": "assistant", "content": "a"}]})";
  EXPECT_EQ(one(record), turn("user", "q") + turn("assistant", "old") + turn("user", "r") + turn("assistant", "a"));
  EXPECT_EQ(trained_.at(0), "a<|im_end|>");
  EXPECT_EQ(one(record, {.train_on = TrainOn::all}), trained_.at(0));
}

TEST_F(ChatRecordForms, WrittenTemplatesReadTheAssistantsTokens) {
  const ReaderOptions chatml{.chat_template = chat_template_from_string("chatml")};
  const std::string record =
      R"({"messages": [{"role": "user", "content": "<think>"}, {"role": "assistant", "content": "<think>b</think>c"},
          {"role": "user", "content": "q"}, {"role": "assistant", "content": "d <|im_end|>"}]})";
  (void)one(record, chatml);
  const auto count = [&](const char* token) {
    return std::ranges::count(encoded_.at(0).ids, *tokenizer_->find_token(token));
  };
  EXPECT_EQ(count("<think>"), 1);
  EXPECT_EQ(count("</think>"), 1);
  EXPECT_EQ(count("<|im_end|>"), 4);
  EXPECT_EQ(notes_->plain_tokens, (RecordNotes::Counts{{"<think>", 1}, {"<|im_end|>", 1}}));
}

TEST_F(ChatRecordForms, TemplatesInAFolderOfTheTokenizer) {
  tokenizer_->save(folder_ / "t");
  write_file(folder_ / "t/chat_template.jinja", "{{ 1 }}");
  std::filesystem::create_directories(folder_ / "t/additional_chat_templates");
  write_file(folder_ / "t/additional_chat_templates/tool_use.jinja", "{{ 2 }}");
  const auto loaded = load_tokenizer(folder_ / "t");
  // Saved in one file, which Transformers reads too.
  loaded->save(folder_ / "copy");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "copy/chat_template.jinja"));
  for (const auto& tokenizer : {load_tokenizer(folder_ / "t"), load_tokenizer(folder_ / "copy")}) {
    ASSERT_TRUE(tokenizer->chat_template());
    EXPECT_EQ(tokenizer->chat_template()->text, "{{ 1 }}");
    ASSERT_EQ(tokenizer->chat_template()->named.size(), 1U);
    EXPECT_EQ(tokenizer->chat_template()->named[0].name, "tool_use");
    EXPECT_EQ(tokenizer->chat_template()->named[0].text, "{{ 2 }}");
    EXPECT_EQ(tokenizer->fingerprint(), tokenizer_->fingerprint());
  }
}

}  // namespace
}  // namespace quench
