#include "data/text/chat_renderer.h"

#include "data/text/document_encoder.h"
#include "data/text/document_reader.h"
#include "tests/data/sampling/token_fixtures.h"
#include "tests/data/tokenizer/tokenizer_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;
using testing::TempDir;
using testing::write_file;

constexpr const char* kPlain =
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr const char* kMarked =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}{% else %}{{ m.content + '<|im_end|>\\n' }}{% endif %}"
    "{% endfor %}";

class ChatRendering : public ::testing::Test {
 protected:
  EncodedDocument encode(const char* source, const char* record, TrainOn train_on = TrainOn::assistant) const {
    const ChatRenderer renderer(source, "t.jinja", *tokenizer_, "");
    const Conversation conversation = openai_conversation(Json::parse(record));
    const std::vector<Document> documents{{.pieces = renderer.render(conversation, train_on), .complete = true}};
    return DocumentEncoder(*tokenizer_, {}).encode(documents).front();
  }
  std::string targets(const EncodedDocument& document) const {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < document.ids.size(); ++i)
      if (document.targets[i] != 0) ids.push_back(document.ids[i]);
    return tokenizer_->decode(ids);
  }

  std::unique_ptr<Tokenizer> tokenizer_ = testing::with_special_tokens(
      *load_tokenizer(testing::golden_dir() / "tokenizer"), {"<|im_start|>", "<|im_end|>"});
};

constexpr const char* kChat = R"({"messages": [{"role": "user", "content": "Hi 你"},
  {"role": "assistant", "content": "Hello 😀"}, {"role": "user", "content": "Bye"},
  {"role": "assistant", "content": "So long"}]})";

TEST_F(ChatRendering, TargetsAreTheSameWithAndWithoutMarks) {
  for (const char* source : {kPlain, kMarked}) {
    EXPECT_EQ(targets(encode(source, kChat)), "Hello 😀<|im_end|>So long<|im_end|>");
    EXPECT_EQ(targets(encode(source, kChat, TrainOn::last)), "So long<|im_end|>");
    const EncodedDocument all = encode(source, kChat, TrainOn::all);
    EXPECT_EQ(targets(all), tokenizer_->decode(all.ids));
    EXPECT_EQ(all.ids, encode(source, kChat).ids);
  }
}

TEST_F(ChatRendering, MessagesThatAreNotTrainedOnHaveNoTargets) {
  constexpr const char* kFirst = R"({"messages": [{"role": "system", "content": "S", "weight": 0},
    {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello", "weight": 0},
    {"role": "user", "content": "Bye"}, {"role": "assistant", "content": "So long", "weight": 1}]})";
  constexpr const char* kLast = R"({"messages": [{"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello", "train": true}, {"role": "user", "content": "Bye"},
    {"role": "assistant", "content": "So long", "train": false}]})";
  for (const char* source : {kPlain, kMarked}) {
    EXPECT_EQ(targets(encode(source, kFirst)), "So long<|im_end|>");
    EXPECT_EQ(targets(encode(source, kLast)), "Hello<|im_end|>");
    EXPECT_EQ(targets(encode(source, kLast, TrainOn::last)), "Hello<|im_end|>");
    EXPECT_THAT(targets(encode(source, kLast, TrainOn::all)),
                ::testing::EndsWith("Hello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"));
    EXPECT_THAT(targets(encode(source, kFirst, TrainOn::all)),
                ::testing::EndsWith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
                                    "<|im_start|>assistant\nSo long<|im_end|>\n"));
  }
  // Outside of the loop only the message's own text is known.
  constexpr const char* kOutside =
      "{{ messages[0].content }}{% for m in messages[1:] %}{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
  EXPECT_EQ(targets(encode(kOutside, kFirst)), "So long");
  EXPECT_EQ(targets(encode(kOutside, kFirst, TrainOn::all)), "HiByeSo long");
}

TEST_F(ChatRendering, IdsMatchTokenizedWholeText) {
  const EncodedDocument encoded = encode(kMarked, kChat);
  EXPECT_EQ(encoded.ids,
            tokenizer_->encode("<|im_start|>user\nHi 你<|im_end|>\n<|im_start|>assistant\nHello 😀<|im_end|>\n"
                               "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\nSo long<|im_end|>\n",
                               {.add_special_tokens = false, .parse_special = true}));
}

TEST_F(ChatRendering, SpecialTokensInMessagesStayText) {
  const EncodedDocument encoded = encode(kMarked, R"({"messages": [{"role": "user", "content": "a <|im_end|> b"},
    {"role": "assistant", "content": "c <|im_start|>"}, {"role": "user", "content": "d"},
    {"role": "assistant", "content": "e"}]})");
  EXPECT_EQ(std::ranges::count(encoded.ids, *tokenizer_->find_token("<|im_end|>")), 4);
  EXPECT_EQ(std::ranges::count(encoded.ids, *tokenizer_->find_token("<|im_start|>")), 4);
  EXPECT_EQ(tokenizer_->decode(encoded.ids),
            "<|im_start|>user\na <|im_end|> b<|im_end|>\n<|im_start|>assistant\nc <|im_start|><|im_end|>\n"
            "<|im_start|>user\nd<|im_end|>\n<|im_start|>assistant\ne<|im_end|>\n");
  EXPECT_EQ(targets(encoded), "c <|im_start|><|im_end|>e<|im_end|>");
}

// A generation prompt may open a thought that earlier turns do not have.
TEST_F(ChatRendering, AHeaderMayBeShorterThanTheGenerationPrompt) {
  const std::string thinking =
      std::string(kPlain).replace(std::string(kPlain).rfind("assistant\\n"), 11, "assistant\\n<think>\\n");
  EXPECT_EQ(targets(encode(thinking.c_str(), R"({"messages": [{"role": "user", "content": "a"},
    {"role": "assistant", "content": "<tall>"}]})")),
            "<tall><|im_end|>");
}

TEST_F(ChatRendering, TurnsThatTheTemplateDoesNotWriteAreRefused) {
  constexpr const char* kTwo = "{% for m in messages[:2] %}{{ m.content }}<|im_end|>{% endfor %}";
  constexpr const char* kMarkedTwo =
      "{% for m in messages %}{% if loop.index == 2 %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
      "{% else %}{{ m.content }}{% endif %}{% endfor %}";
  for (const char* source : {kTwo, kMarkedTwo}) {
    expect_error(ErrorCode::invalid_argument, {"message 3", "t.jinja", "\"train\": false"},
                 [&] { (void)encode(source, kChat); });
    EXPECT_EQ(targets(encode(source, R"({"messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "A"}, {"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "B", "loss": false}]})")),
              "A<|im_end|>");
  }
  expect_error(ErrorCode::bad_config, {"2024-13-45"}, [&] { ChatRenderer(kPlain, "t", *tokenizer_, "2024-13-45"); });
}

class ChatRecords : public ::testing::Test {
 protected:
  std::vector<Document> read(const std::string& lines, ReaderOptions options = {}) {
    write_file(folder_ / "a.jsonl", lines);
    if (options.chat_template == nullptr) options.chat_template = chat_template_from_string("chatml");
    const auto reader = open_document_reader(folder_ / "a.jsonl", options);
    std::vector<Document> documents;
    for (Document document; reader->next(document);) documents.push_back(document);
    return documents;
  }
  static std::string text(const Document& document, bool targets_only = false) {
    std::string text;
    for (const DocumentPiece& piece : document.pieces)
      if (!targets_only || piece.target) text += piece.text;
    return text;
  }
  TempDir folder_;
};

TEST_F(ChatRecords, AlpacaAndCompletions) {
  const auto alpaca = read(R"({"instruction": "Add", "input": "1 2", "output": "3"})"
                           "\n"
                           R"({"instruction": "Hi", "input": "", "output": "Ho", "system": "S"})");
  EXPECT_EQ(text(alpaca.at(0)), "<|im_start|>user\nAdd\n\n1 2<|im_end|>\n<|im_start|>assistant\n3<|im_end|>\n");
  EXPECT_EQ(text(alpaca.at(1)),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n");
  EXPECT_EQ(text(alpaca.at(0), true), "3<|im_end|>");

  const std::string record = R"({"prompt": "1 + 1 =", "completion": " 2"})";
  const auto completion = read(record);
  EXPECT_EQ(text(completion.at(0)), "1 + 1 = 2");
  EXPECT_EQ(text(completion.at(0), true), " 2");
  EXPECT_FALSE(completion.at(0).complete) << "the end-of-sequence token follows";
  EXPECT_EQ(text(read(record, {.train_on = TrainOn::all}).at(0), true), "1 + 1 = 2");
}

TEST_F(ChatRecords, TrainOnChoosesTheTurns) {
  const std::string record =
      std::string(R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"},)") +
      R"({"from": "user", "value": "c"}, {"from": "assistant", "value": "d"}]})";
  EXPECT_EQ(text(read(record).at(0), true), "b<|im_end|>d<|im_end|>");
  EXPECT_EQ(text(read(record, {.train_on = TrainOn::last}).at(0), true), "d<|im_end|>");
  const auto all = read(record, {.train_on = TrainOn::all});
  EXPECT_EQ(text(all.at(0), true), text(all.at(0)));
}

TEST_F(ChatRecords, MessagesSayWhetherTheyAreTrainedOn) {
  const std::string record =
      R"({"conversations": [{"from": "system", "value": "s", "weight": null}, {"from": "human", "value": "a"},)"
      R"({"from": "gpt", "value": "b", "weight": 1.0}, {"from": "human", "value": "c", "train": false},)"
      R"({"from": "gpt", "value": "d", "weight": 0}]})";
  EXPECT_EQ(text(read(record).at(0), true), "b<|im_end|>");
  EXPECT_EQ(text(read(record, {.train_on = TrainOn::last}).at(0), true), "b<|im_end|>");
  EXPECT_EQ(text(read(record, {.train_on = TrainOn::all}).at(0), true),
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n");
  const std::string llama3 =
      text(read(record, {.chat_template = chat_template_from_string("llama3"), .train_on = TrainOn::all}).at(0), true);
  EXPECT_THAT(llama3, ::testing::StartsWith("<|begin_of_text|><|start_header_id|>system"));
  EXPECT_THAT(llama3, ::testing::EndsWith("\n\nb<|eot_id|>"));
  const std::string llama2 =
      text(read(record, {.chat_template = chat_template_from_string("llama2"), .train_on = TrainOn::all}).at(0), true);
  EXPECT_EQ(llama2, "<s>[INST] <<SYS>>\ns\n<</SYS>>\n\na [/INST] b </s>");
}

TEST_F(ChatRecords, ToolsComeInBothForms) {
  const Conversation shared = sharegpt_conversation(Json::parse(
      R"({"conversations": [{"from": "human", "value": "w?"}, {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
          {"from": "observation", "value": "ok"}, {"from": "gpt", "value": "b"}], "tools": "[{\"name\": \"f\"}]", "system": "s"})"));
  const Conversation open = openai_conversation(Json::parse(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "w"}, {"type": "text", "text": "?"}]},
          {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]},
          {"role": "tool", "content": "ok"}, {"role": "assistant", "content": "b", "tool_calls": null}], "tools": [{"name": "f"}]})"));
  EXPECT_EQ(Json(shared.messages), Json(open.messages));
  EXPECT_EQ(shared.tools, open.tools);
  check_conversation(open);
  expect_error(ErrorCode::invalid_argument, {"tools", ".jinja"}, [&] { (void)plain_messages(open); });
}

// LLaMA-Factory's turns of calls: one, a list, and text or a thought next to them.
TEST_F(ChatRecords, AFunctionCallTurnMayHaveSeveralCallsAndAThought) {
  const auto turn = [](const std::string& value) {
    const Conversation given = sharegpt_conversation(
        Json::Object{{"conversations", Json::Array{Json::Object{{"from", "function_call"}, {"value", value}}}}});
    return given.messages.at(0);
  };
  const std::string one = R"({"name": "f", "arguments": {"x": [1]}})", two = R"({"name": "g", "arguments": "{}"})";
  const auto names = [](const Json& message) {
    std::string text;
    for (const Json& call : message.at("tool_calls").as_array()) text += call.at("function").at("name").as_string();
    return text;
  };
  EXPECT_EQ(names(turn(one)), "f");
  EXPECT_EQ(names(turn("[" + one + ", " + two + "]")), "fg");
  EXPECT_TRUE(turn("[" + one + "]").at("content").is_null());
  const Json thought = turn("<think>\nWhich {tool} [of two]?\n</think>\n\n[" + one + "," + two + "]");
  EXPECT_EQ(names(thought), "fg");
  EXPECT_EQ(thought.at("content").as_string(), "<think>\nWhich {tool} [of two]?\n</think>\n\n");
  const Json text = turn("I look {it} up: " + one);
  EXPECT_EQ(names(text), "f");
  EXPECT_EQ(text.at("content").as_string(), "I look {it} up: ");
  const Json marked = turn("First\n<tool_call>" + one + "</tool_call><tool_call>" + two + "</tool_call>");
  EXPECT_EQ(names(marked), "fg");
  EXPECT_EQ(marked.at("content").as_string(), "First\n");
  EXPECT_EQ(turn(one).at("tool_calls").as_array().at(0).at("function").at("arguments").dump(), R"({"x":[1]})");
  for (const auto& [value, part] : {std::pair("[]", "an empty list of calls"),
                                    {"[1]", "the call is integer"},
                                    {"no call", "the call"},
                                    {"<tool_call>{}", "without </tool_call>"},
                                    {R"({"name": "f"})", "no field \"arguments\""}})
    expect_error(ErrorCode::corrupt, {part}, [&] { (void)turn(value); });
}

TEST_F(ChatRecords, SpeakersOfShareGptAreRoles) {
  const Conversation given = sharegpt_conversation(Json::parse(
      R"({"conversations": [{"from": "developer", "value": "s"}, {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"},
          {"from": "ipython", "value": "c"}, {"from": "gpt", "value": "d"}]})"));
  std::vector<std::string> roles;
  for (const Json& message : given.messages) roles.push_back(message.at("role").as_string());
  EXPECT_EQ(roles, (std::vector<std::string>{"developer", "user", "assistant", "tool", "assistant"}));
}

TEST_F(ChatRecords, MessagesMayHaveTheOtherForm) {
  const Conversation shared = openai_conversation(
      Json::parse(R"({"messages": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b", "train": true}]})"));
  const Conversation open = sharegpt_conversation(Json::parse(
      R"({"conversations": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 1}]})"));
  EXPECT_EQ(Json(shared.messages), Json(open.messages));
}

// As Transformers does: the first name that has a value counts.
TEST_F(ChatRecords, ThoughtsHaveThreeNames) {
  const auto answer = [](const char* thoughts) {
    return openai_conversation(
               Json::parse(fmt::format(R"({{"messages": [{{"role": "assistant", "content": "b", {}}}]}})", thoughts)))
        .messages.at(0);
  };
  for (const char* one : {R"("reasoning": "r")", R"("thinking": "r")", R"("reasoning_content": "r", "reasoning": "s")",
                          R"("reasoning_content": null, "thinking": "r", "reasoning": null)"}) {
    EXPECT_EQ(answer(one).at("reasoning_content").as_string(), "r") << one;
    EXPECT_EQ(answer(one).at("thinking").as_string(), "r") << one;
  }
  EXPECT_EQ(answer(R"("reasoning_content": "r", "thinking": "t")").at("thinking").as_string(), "t");
  EXPECT_EQ(answer(R"("reasoning": null)").find("reasoning_content"), nullptr);
}

TEST_F(ChatRecords, AlpacaJoinsWhatIsThere) {
  const auto question = [](const char* record) {
    return alpaca_conversation(Json::parse(record)).messages.at(0).at("content").as_string();
  };
  EXPECT_EQ(question(R"({"instruction": "a", "input": "b", "output": "c"})"), "a\n\nb");
  EXPECT_EQ(question(R"({"instruction": "a", "input": "", "output": "c"})"), "a");
  EXPECT_EQ(question(R"({"instruction": "", "input": "b", "output": "c"})"), "b");
  expect_error(ErrorCode::corrupt, {"field \"system\" is integer"},
               [&] { (void)question(R"({"instruction": "a", "output": "c", "system": 1})"); });
}

TEST_F(ChatRecords, BadConversationsAreNamedWithFileAndLine) {
  const std::string good = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";
  const auto refused = [&](const std::string& record, const std::string& what) {
    expect_error(ErrorCode::corrupt, {"a.jsonl:2", what}, [&] { (void)read(good + "\n" + record); });
  };
  refused(R"({"messages": [{"role": "bot", "content": "a"}]})", "message 0: role 'bot'");
  refused(R"({"messages": [{"role": "user", "content": "a"}]})", "no assistant message");
  refused(R"({"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": "b"}]})",
          "message 0: the user's message is empty");
  refused(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]})",
          "message 1: the assistant's message is empty");
  const auto with = [](const char* user, const char* assistant) {
    return fmt::format(
        R"({{"messages": [{{"role": "user", "content": "a"{}}}, {{"role": "assistant", "content": "b"{}}}]}})", user,
        assistant);
  };
  refused(with("", R"(, "weight": 0)"), "no assistant message is a target");
  refused(with("", R"(, "weight": 0.5)"), "message 1: field \"weight\" is 0.5");
  refused(with("", R"(, "train": "yes")"), "message 1: field \"train\" is \"yes\"; expected true, 1, false or 0");
  refused(with("", R"(, "train": true, "weight": 0)"), "contradict each other");
  refused(with("", R"(, "tool_calls": "f")"), "message 1: field \"tool_calls\" is string, expected array");
  for (const char* call : {"7", "{}", R"({"function": "f"})", R"({"function": {"name": ""}})", R"({"name": 1})"})
    refused(with("", fmt::format(R"(, "tool_calls": [{{"name": "f"}}, {}])", call).c_str()),
            "message 1: tool_calls[1] names no function");
  refused(good.substr(0, good.size() - 1) + R"(, "tools": [{"name": "f"}, "g"]})",
          "tools[1] is string, expected object");
  refused(with(R"(, "train": true)", ""), "message 0: a flag asks to train on it");
  EXPECT_EQ(text(read(with(R"(, "train": true)", ""), {.train_on = TrainOn::all}).at(0), true),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n");
  refused(R"({"messages": [{"content": "a"}]})", "no field \"role\"");
  refused(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})", "a content part is not of type text");
  refused(R"({"messages": "a"})", "expected array");
}

TEST_F(ChatRecords, TheTokenizersOwnTemplateIsTakenFirst) {
  const auto base = testing::with_special_tokens(*load_tokenizer(testing::golden_dir() / "tokenizer"),
                                                 {"<|im_start|>", "<|im_end|>"});
  base->save(folder_ / "t");
  ReaderOptions options;
  resolve_chats(options, *load_tokenizer(folder_ / "t"));
  EXPECT_EQ(options.chat_template, chat_template_from_string("chatml"));
  EXPECT_EQ(options.chat_renderer, nullptr);
  write_file(
      folder_ / "t/tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "{% x %}"}, {"name": "default", "template": "{{ 1 }}"}]})");
  const auto with_list = load_tokenizer(folder_ / "t");
  ASSERT_TRUE(with_list->chat_template());
  EXPECT_EQ(with_list->chat_template()->text, "{{ 1 }}");
  write_file(folder_ / "t/chat_template.jinja", "{{ 2 }}");
  const auto with_file = load_tokenizer(folder_ / "t");
  EXPECT_EQ(with_file->chat_template()->text, "{{ 2 }}");
  EXPECT_EQ(with_file->fingerprint(), with_list->fingerprint()) << "ids do not depend on it";
  ReaderOptions own, named, file;
  resolve_chats(own, *with_file);
  ASSERT_NE(own.chat_renderer, nullptr);
  set_chat_template(named, "chatml");
  resolve_chats(named, *with_file);
  EXPECT_EQ(named.chat_renderer, nullptr);
  write_file(folder_ / "other.jinja", "{{ 3 }}");
  set_chat_template(file, (folder_ / "other.jinja").string());
  resolve_chats(file, *with_file);
  EXPECT_NE(file.chat_renderer->identity(), own.chat_renderer->identity());
}

}  // namespace
}  // namespace quench
