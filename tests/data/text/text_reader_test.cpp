#include "data/text/text_reader.h"

#include "data/text/record_notes.h"
#include "data/text/text_format.h"
#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;
using testing::TempDir;
using testing::write_file;
using Texts = std::vector<std::string>;

// A document a string; the parts of one document are joined by '|'.
struct TextReading {
  Texts texts;
  Texts origins;  // line numbers
  ReadReport report;
};

TextReading read_text(const std::string& bytes, ReaderOptions options) {
  TempDir folder;
  write_file(folder / "a.txt", bytes);
  const auto reader = open_document_reader(folder / "a.txt", options);
  TextReading reading;
  Document document;
  bool open = false;
  while (reader->next(document)) {
    EXPECT_EQ(document.begins, !open);
    EXPECT_EQ(document.pieces.size(), 1u);
    EXPECT_FALSE(document.complete);
    if (document.begins) {
      reading.texts.push_back(document.pieces[0].text);
      reading.origins.push_back(document.origin.substr(document.origin.rfind(':') + 1));
    } else {
      reading.texts.back() += "|" + document.pieces[0].text;
    }
    open = !document.ends;
  }
  EXPECT_FALSE(open);
  EXPECT_EQ(reader->consumed(), bytes.size());
  reading.report = reader->report();
  return reading;
}

TEST(TextReader, AWholeFileIsKeptAsItIs) {
  const std::string text = "first\r\n\r\n  second \n<|endoftext|>\n\n";
  EXPECT_EQ(read_text(text, {}).texts, Texts{text});
  EXPECT_EQ(read_text("\xEF\xBB\xBFx", {}).texts, Texts{"x"});
  const TextReading empty = read_text(" \n\t\n", {});
  EXPECT_EQ(empty.texts, Texts{});
  EXPECT_EQ(empty.report.empty, 1u);
  EXPECT_EQ(read_text("", {}).texts, Texts{});
}

TEST(TextReader, BlankLinesSeparateDocuments) {
  const ReaderOptions options{.split = TextSplit::blank_line};
  const TextReading reading = read_text("\na\nb\n\n\nc\n \t\nd\r\n\r\ne\n\n", options);
  EXPECT_EQ(reading.texts, (Texts{"a\nb", "c", "d", "e"}));
  EXPECT_EQ(reading.origins, (Texts{"2", "6", "8", "10"}));
  EXPECT_EQ(reading.report.documents, 4u);
  EXPECT_EQ(read_text("only", options).texts, Texts{"only"});
  EXPECT_EQ(read_text("\n\n\n", options).texts, Texts{});
  EXPECT_EQ(read_text("a\n  b", options).texts, Texts{"a\n  b"});
}

TEST(TextReader, BlankLinesOfATextWithCarriageReturnsAlone) {
  const TextReading reading = read_text("\ra\rb\r\r \rc\r", {.split = TextSplit::blank_line});
  EXPECT_EQ(reading.texts, (Texts{"a\rb", "c"}));
  EXPECT_EQ(reading.origins, (Texts{"2", "6"}));
  EXPECT_EQ(read_text("a\r\rb\r", {}).texts, Texts{"a\r\rb\r"});
}

TEST(TextReader, MarkersSeparateDocuments) {
  const ReaderOptions options{.split = TextSplit::marker};
  EXPECT_EQ(read_text("a<|endoftext|>b\n\nc\n<|endoftext|>\nd\n", options).texts, (Texts{"a", "b\n\nc", "d"}));
  EXPECT_EQ(read_text("<|endoftext|>\n<|endoftext|>", options).texts, Texts{});
  EXPECT_EQ(read_text("x<|endoftext|", options).texts, Texts{"x<|endoftext|"});
  EXPECT_EQ(read_text("x\n---\ny", {.split = TextSplit::marker, .marker = "\n---\n"}).texts, (Texts{"x", "y"}));
  expect_error(ErrorCode::bad_config, {"marker is empty"},
               [] { read_text("x", {.split = TextSplit::marker, .marker = ""}); });
}

// Documents of all lengths over several blocks of the reader, so that separators fall on every border.
TEST(TextReader, SeparatorsOnBlockBorders) {
  for (const auto& [split, separator] : {std::pair{TextSplit::blank_line, std::string("\n \r\n\n")},
                                         std::pair{TextSplit::marker, std::string("<|endoftext|>")}}) {
    for (std::size_t shift = 0; shift < 16; ++shift) {
      Texts expected{std::string((1 << 20) - shift, 'a'), "b", std::string((1 << 20) + 3, 'c'), "d"};
      std::string bytes;
      for (const std::string& text : expected) bytes += text + separator;
      EXPECT_EQ(read_text(bytes, {.split = split}).texts, expected) << shift;
    }
  }
  Texts many;
  std::string bytes;
  for (int i = 0; i < 20000; ++i) {
    many.push_back("document " + std::to_string(i) + std::string(static_cast<std::size_t>(i % 300), 'x'));
    bytes += many.back() + "\n\n";
  }
  EXPECT_EQ(read_text(bytes, {.split = TextSplit::blank_line}).texts, many);
}

TEST(TextReader, LargeDocumentsComeInParts) {
  EXPECT_EQ(read_text("ab\ncd\nef gh", {.max_document_bytes = 8}).texts, Texts{"ab\ncd\n|ef gh"});
  EXPECT_EQ(read_text("word word word", {.max_document_bytes = 8}).texts, Texts{"word| word| word"});
  EXPECT_EQ(read_text("ab\n  cd\n\nef", {.max_document_bytes = 10}).texts, Texts{"ab\n  cd\n\n|ef"});
  // Never inside a character.
  const std::string greek = "αβγδεζηθικ";
  for (std::uint64_t limit = 4; limit < 20; ++limit) {
    const Texts texts = read_text(greek, {.max_document_bytes = limit}).texts;
    ASSERT_EQ(texts.size(), 1u);
    std::string joined = texts[0];
    joined.erase(std::remove(joined.begin(), joined.end(), '|'), joined.end());
    EXPECT_EQ(joined, greek);
  }
  EXPECT_EQ(read_text("word word word\n\nx", {.split = TextSplit::blank_line, .max_document_bytes = 8}).texts,
            (Texts{"word| word| word", "x"}));
  // A marker at the cut is still found.
  for (std::uint64_t limit = 1; limit < 30; ++limit) {
    Texts texts = read_text("abc def<|endoftext|>ghi", {.split = TextSplit::marker, .max_document_bytes = limit}).texts;
    ASSERT_EQ(texts.size(), 2u) << limit;
    for (auto& text : texts) text.erase(std::remove(text.begin(), text.end(), '|'), text.end());
    EXPECT_EQ(texts, (Texts{"abc def", "ghi"})) << limit;
  }
}

TEST(TextReader, RecordsInATextFileAreNoted) {
  testing::TempDir folder;
  const auto warnings = [&](const std::string& bytes, const char* format) {
    testing::write_file(folder / "a.txt", bytes);
    const auto notes = std::make_shared<RecordNotes>();
    ReaderOptions options{.notes = notes};
    if (format != nullptr) options.format = text_formats().find(format);
    (void)open_document_reader(folder / "a.txt", options);
    return notes->warnings();
  };
  for (const char* bytes : {"{\"text\": \"a\"}\n{\"text\": \"b\"}\n", "\xEF\xBB\xBF\r\n {\"messages\": []}\r\n",
                            "[{\"text\": \"a\"}]", "[\n  {\n    \"text\": \"a\"}]"}) {
    const std::vector<std::string> lines = warnings(bytes, nullptr);
    ASSERT_EQ(lines.size(), 1U) << bytes;
    EXPECT_THAT(lines[0], ::testing::HasSubstr("a.txt begins with a JSON record, but is read as plain text"));
    EXPECT_TRUE(warnings(bytes, "text").empty()) << bytes;
  }
  for (const char* bytes : {"", "text", "{", "{}", "{a}\n", "{\"a\"", "[1]", "[link](x)", "\n\n"})
    EXPECT_TRUE(warnings(bytes, nullptr).empty()) << bytes;
}

TEST(TextReader, RecordsInManyTextFilesAreOneWarning) {
  testing::TempDir folder;
  const auto notes = std::make_shared<RecordNotes>();
  for (const char* name : {"b.txt", "a.txt", "c.md"}) {
    testing::write_file(folder / name, "{\"text\": \"a\"}\n");
    (void)open_document_reader(folder / name, {.notes = notes});
  }
  const std::vector<std::string> lines = notes->warnings();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], ::testing::HasSubstr("a.txt begins with a JSON record, but is read as plain text by its name "
                                             "(3 such files)"));
}

// White space without end is neither held nor quadratic: the whole is cut into parts of at most the limit.
TEST(TextReader, LongRunsOfWhiteSpace) {
  const ReaderOptions options{.split = TextSplit::blank_line, .max_document_bytes = 1000};
  EXPECT_EQ(read_text("a" + std::string(3 << 20, '\n') + "b", options).texts, (Texts{"a", "b"}));
  std::string spaces = read_text("a\n" + std::string(3 << 20, ' ') + "\nb", options).texts.at(0);
  EXPECT_EQ(std::count(spaces.begin(), spaces.end(), ' '), 3 << 20);
  EXPECT_EQ(spaces.substr(spaces.size() - 2), "\nb");
}

TEST(TextReader, BadTextIsAnErrorOrSkippedWithItsLine) {
  const std::string bytes = "good\n\nbad \xFF here\n\ngood too\n\nzero\nb" + std::string(1, '\0') + "te\n\nlast";
  const ReaderOptions strict{.split = TextSplit::blank_line};
  expect_error(ErrorCode::corrupt, {"a.txt:3", "0xff"}, [&] { read_text(bytes, strict); });
  const TextReading reading = read_text(bytes, {.split = TextSplit::blank_line, .on_bad_record = BadRecord::skip});
  EXPECT_EQ(reading.texts, (Texts{"good", "good too", "last"}));
  EXPECT_EQ(reading.report.bad_records, 2u);
  ASSERT_EQ(reading.report.first_bad.size(), 2u);
  EXPECT_THAT(reading.report.first_bad[0], ::testing::HasSubstr("a.txt:3: byte 0xff"));
  EXPECT_THAT(reading.report.first_bad[1], ::testing::HasSubstr("a.txt:8: a zero byte"));
  // A bad part leaves a gap.
  EXPECT_EQ(read_text("ab\nc\xFF\nef\n", {.on_bad_record = BadRecord::skip, .max_document_bytes = 4}).texts,
            Texts{"ab\n||ef\n"});
  expect_error(ErrorCode::unsupported, {"UTF-16"}, [] { read_text("\xFF\xFEx", {}); });
}

}  // namespace
}  // namespace quench
