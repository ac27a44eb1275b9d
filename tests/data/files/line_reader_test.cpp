#include "data/files/line_reader.h"

#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using testing::TempDir;
using testing::write_file;

std::vector<std::string> lines_of(const std::string& bytes, std::uint64_t limit = 1000) {
  TempDir folder;
  write_file(folder / "a.jsonl", bytes);
  TextInput input(folder / "a.jsonl");
  LineReader reader(input, limit);
  std::vector<std::string> lines;
  while (reader.next()) {
    lines.push_back(reader.too_long() ? "<long>" : reader.text());
    EXPECT_EQ(reader.number(), lines.size());
  }
  EXPECT_EQ(reader.consumed(), bytes.size());
  EXPECT_FALSE(reader.next());
  return lines;
}

TEST(LineReader, LineEndsAndByteOrderMark) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines_of(""), Lines{});
  EXPECT_EQ(lines_of("a"), Lines{"a"});
  EXPECT_EQ(lines_of("a\n"), Lines{"a"});
  EXPECT_EQ(lines_of("a\r\nb\n\nc\r\n"), (Lines{"a", "b", "", "c"}));
  EXPECT_EQ(lines_of("\xEF\xBB\xBFx\n\xEF\xBB\xBFy"), (Lines{"x", "\xEF\xBB\xBFy"}));
  EXPECT_EQ(lines_of("\xEF\xBB\xBF"), Lines{});
  EXPECT_EQ(lines_of("\n"), Lines{""});
  EXPECT_EQ(lines_of("\r"), Lines{""});
  EXPECT_EQ(lines_of(std::string("a\0b\n", 4)), (Lines{std::string("a\0b", 3)}));
}

TEST(LineReader, CarriageReturnsAloneEndLinesOfATextWithoutOthers) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines_of("a\rb\r\rc"), (Lines{"a", "b", "", "c"}));
  EXPECT_EQ(lines_of("a\rb\nc\n"), (Lines{"a\rb", "c"}));
}

TEST(LineReader, LinesAcrossBlocks) {
  std::string bytes;
  std::vector<std::string> expected;
  for (int i = 0; i < 3000; ++i) {
    expected.emplace_back(static_cast<std::size_t>(i * 37 % 1001), static_cast<char>('a' + i % 26));
    bytes += expected.back() + (i % 3 == 0 ? "\r\n" : "\n");
  }
  EXPECT_EQ(lines_of(bytes, 2000), expected);
}

TEST(LineReader, LinesAboveTheLimitAreSkippedWithoutBeingHeld) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines_of("abcde\nabcdef\nx\n", 5), (Lines{"abcde", "<long>", "x"}));
  EXPECT_EQ(lines_of("abcde\r\nabcdef\r\n", 5), (Lines{"abcde", "<long>"}));
  const std::string bytes = "a\n" + std::string(5000000, 'x') + "\nb";
  EXPECT_EQ(lines_of(bytes, 100), (Lines{"a", "<long>", "b"}));
}

}  // namespace
}  // namespace quench
