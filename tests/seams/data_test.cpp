// Adding a format of text, a kind of record, a chat template, a tokenizer and an evaluation task: from their names to
// documents, ids and items.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/system/automatic_choice.h"
#include "core/system/choice_table.h"
#include "data/sampling/data_formats.h"
#include "data/text/chat_template.h"
#include "data/text/conversation.h"
#include "data/text/record_kind.h"
#include "data/text/text_format.h"
#include "data/text/text_reader.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "tests/seams/refusal.h"
#include "tests/testing.h"
#include "train/config/fields/field.h"
#include "train/evaluation/choice_task.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal;
using testing::TempDir;
using testing::write_file;

// A document a line.
std::unique_ptr<DocumentReader> open_lines(const std::filesystem::path& path, const ReaderOptions& options) {
  ReaderOptions lines = options;
  lines.split = TextSplit::marker;
  lines.marker = "\n";
  return open_text_reader(path, lines);
}

std::vector<DocumentPiece> pair_pieces(const Json& record, const ReaderOptions&) {
  return {{.text = typed_field(record, "source", "string").as_string(), .target = false},
          {.text = typed_field(record, "target", "string").as_string()}};
}

void render_script(const std::vector<ChatMessage>& messages, bool all, std::vector<DocumentPiece>& pieces) {
  for (const ChatMessage& said : messages)
    pieces.push_back({.text = said.role + ": " + said.content, .target = all || said.role == "assistant"});
}

void begin_script(std::vector<DocumentPiece>& pieces, bool target) {
  pieces.push_back({.text = "assistant:", .target = target});
}

std::unique_ptr<Tokenizer> open_as_bytes(const std::filesystem::path&, const std::vector<std::string>&) {
  return make_byte_tokenizer();
}

ChoiceItem parity(const Json& record) {
  const std::string& number = typed_field(record, "number", "string").as_string();
  return {"The number " + number + " is", {"even", "odd"}, static_cast<std::size_t>((number.back() - '0') % 2)};
}

const Registered<TextFormat> kLines{{"lines", "a document a line", {".lines"}, open_lines}};
const Registered<RecordKind> kPair{{.name = "pair",
                                    .summary = "a text and its translation",
                                    .form = R"({"source", "target"})",
                                    .keys = {"source", "target"},
                                    .read = pair_pieces,
                                    .rank = 7}};
const Registered<ChatTemplate> kScript{{.name = "script",
                                        .special_tokens = {"<|cut|>"},
                                        .render = render_script,
                                        .begin_answer = begin_script,
                                        .end_of_turn = "<|cut|>",
                                        .jinja = "{{ messages }}"}};
const Registered<TokenizerKind> kFile{{"vocabulary.list", "a vocabulary.list", open_as_bytes, ".list"}};
const Registered<TokenizerKind> kWord{
    {.name = "octets", .summary = "the word octets", .open = open_as_bytes, .is_word = true}};
const Registered<ChoiceTask> kParity{{"parity", "whether a number is even", "number", parity}};

std::vector<std::string> texts_of(const std::filesystem::path& path, const ReaderOptions& options = {}) {
  const auto reader = open_document_reader(path, options);
  std::vector<std::string> texts;
  for (Document document; reader->next(document);)
    for (const DocumentPiece& piece : document.pieces) texts.push_back(piece.text);
  return texts;
}

TEST(AddedTextFormat, IsReadByTheNameOfItsFiles) {
  const TempDir dir;
  write_file(dir / "a.lines", "one\ntwo\nthree\n");
  EXPECT_THAT(texts_of(dir / "a.lines"), ElementsAre("one", "two", "three"));
  EXPECT_EQ(data_format_named("lines").text, text_format_of(dir / "a.lines"));
  EXPECT_THAT(find_field("data.format")->type, HasSubstr("text, jsonl, json, csv, tsv, parquet, arrow, lines, quench"));
  EXPECT_THAT(find_field("data.format")->help, HasSubstr("lines: a document a line."));
  write_file(dir / "a.dat", "x");
  EXPECT_THAT(refusal([&] { (void)texts_of(dir / "a.dat"); }),
              HasSubstr("text, jsonl, json, csv, tsv, parquet, arrow, lines"));
}

TEST(AddedTextFormat, MayBeLeftToBeChosenLater) {
  const TextFormat* lines = text_formats().find("lines");
  EXPECT_EQ(require_or_auto(text_formats(), "lines", "--format"), lines);
  EXPECT_EQ(require_or_auto(text_formats(), "auto", "--format"), nullptr);
  EXPECT_EQ(name_or_auto(lines), "lines");
  EXPECT_EQ(name_or_auto<TextFormat>(nullptr), "auto");
  EXPECT_EQ(refusal([] { (void)require_or_auto(text_formats(), "line", "--format"); }),
            "--format 'line' is unknown; known: auto, text, jsonl, json, csv, tsv, parquet, arrow, lines");
}

TEST(AddedRecordKind, IsKnownByItsKeys) {
  const TempDir dir;
  write_file(dir / "a.jsonl", R"({"source": "one", "target": "eins"})");
  EXPECT_THAT(texts_of(dir / "a.jsonl"), ElementsAre("one", "eins"));
  // The kind with the smaller rank, and the field of plain text, come first.
  EXPECT_EQ(record_kind_of(Json::parse(R"({"source": "", "target": "", "input_ids": []})"), "text").name, "tokens");
  EXPECT_EQ(record_kind_of(Json::parse(R"({"source": "", "target": "", "text": ""})"), "text").name, "text");
  EXPECT_THAT(refusal([] { (void)record_kind_of(Json::parse("{}"), "body"); }),
              ::testing::HasSubstr(
                  "no field \"body\", \"messages\", \"conversations\", \"input_ids\", \"instruction\" and \"output\", "
                  "\"query\" and \"response\", \"prompt\" and \"completion\", or \"source\" and \"target\"; the record "
                  "has none"));
}

TEST(AddedChatTemplate, WritesTheChatsOfItsName) {
  const TempDir dir;
  write_file(dir / "a.jsonl",
             R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]})");
  ReaderOptions options;
  set_chat_template(options, "script");
  EXPECT_THAT(texts_of(dir / "a.jsonl", options), ElementsAre("user: Q", "assistant: A"));
  EXPECT_EQ(chat_template_text("script"), "{{ messages }}");
  const std::vector<DocumentPiece> prompt = render_chat_prompt(options.chat_template, {{"user", "Q"}});
  EXPECT_EQ(prompt.back().text, "assistant:");
  EXPECT_THAT(find_field("data.chat_template")->help, HasSubstr("llama2, script"));
  EXPECT_THAT(refusal([] { (void)chat_template_from_string("film"); }), HasSubstr("chatml, llama2, script"));
}

TEST(AddedTokenizer, IsOpenedByItsFileAndByItsWord) {
  const TempDir dir;
  EXPECT_FALSE(holds_tokenizer(dir.path()));
  EXPECT_THAT(refusal([&] { (void)load_tokenizer(dir.path()); }),
              HasSubstr("neither tokenizer.json nor tokenizer.model nor vocabulary.list"));
  write_file(dir / "vocabulary.list", "");
  write_file(dir / "other.list", "");
  EXPECT_TRUE(holds_tokenizer(dir.path()));
  EXPECT_TRUE(is_tokenizer_file("vocabulary.list"));
  for (const std::filesystem::path& path : {dir.path(), dir / "other.list", std::filesystem::path("octets")})
    EXPECT_EQ(load_tokenizer(path)->vocab_size(), 259) << path;
  EXPECT_TRUE(is_tokenizer_word("octets"));
  EXPECT_FALSE(is_tokenizer_word("vocabulary.list"));
  EXPECT_THAT(find_field("data.tokenizer")->help,
              HasSubstr("a SentencePiece tokenizer.model, a vocabulary.list, a GGUF file, a folder "
                        "with one of them, or the word bytes (a token a byte), or the "
                        "word octets."));
  EXPECT_THAT(refusal([] { (void)load_tokenizer("absent"); }), HasSubstr("or \"bytes\", or \"octets\""));
  // A tokenizer.json that is not supported lets the next file try.
  write_file(dir / "tokenizer.json", R"({"version": "2.0", "model": {}})");
  EXPECT_EQ(load_tokenizer(dir.path())->vocab_size(), 259);
}

TEST(AddedTask, ReadsItsItems) {
  const TempDir dir;
  write_file(dir / "items.jsonl", "{\"number\": \"14\"}\n{\"number\": \"7\"}\n");
  const auto items = read_choice_items(choice_tasks().require("parity", "--task"), dir / "items.jsonl");
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].answer, 0u);
  EXPECT_EQ(items[1].answer, 1u);
  EXPECT_THAT(refusal([] { (void)choice_tasks().require("oddity", "--task"); }), HasSubstr("piqa, parity"));
}

}  // namespace
}  // namespace quench
