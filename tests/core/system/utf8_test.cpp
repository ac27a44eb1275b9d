#include "core/system/utf8.h"

#include <gtest/gtest.h>

namespace quench {
namespace {

TEST(Utf8, AcceptsWellFormedSequencesAtTheirLimits) {
  for (const char* text :
       {"", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF",
        "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "plain ASCII of more than eight bytes"})
    EXPECT_EQ(find_invalid_utf8(text), std::string_view::npos) << text;
}

TEST(Utf8, FindsTheFirstBadByte) {
  EXPECT_EQ(find_invalid_utf8("abc\x80"), 3u);
  EXPECT_EQ(find_invalid_utf8("\xC1\xBF"), 0u);          // overlong
  EXPECT_EQ(find_invalid_utf8("x\xE0\x9F\xBF"), 1u);     // overlong
  EXPECT_EQ(find_invalid_utf8("\xF0\x8F\xBF\xBF"), 0u);  // overlong
  EXPECT_EQ(find_invalid_utf8("\xED\xA0\x80"), 0u);      // surrogate
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // beyond U+10FFFF
  EXPECT_EQ(find_invalid_utf8("0123456789\xE2\x82"), 10u);
  EXPECT_EQ(find_invalid_utf8("01234567\xE2\x82\xAC\xFE"), 11u);
}

TEST(Utf8, ReplacesEachBadByte) {
  EXPECT_EQ(replace_invalid_utf8("a\xFF\xC3\xA4\xC3"), "a\xEF\xBF\xBD\xC3\xA4\xEF\xBF\xBD");
  EXPECT_EQ(replace_invalid_utf8(""), "");
}

// As Python's errors="replace" and Rust's from_utf8_lossy, and so the decode() of byte-level tokenizers.
TEST(Utf8, ReplacesEachMaximalSubpart) {
  const std::string mark = "\uFFFD";
  EXPECT_EQ(replace_invalid_subparts("a\xFF\xC3\xA4\xC3"), "a" + mark + "\xC3\xA4" + mark);
  EXPECT_EQ(replace_invalid_subparts("\xE4\xBD"), mark);
  EXPECT_EQ(replace_invalid_subparts("\xE4\xBD!"), mark + "!");
  EXPECT_EQ(replace_invalid_subparts("\xF0\x9F\x98\xF0\x9F\x98\x80"), mark + "\xF0\x9F\x98\x80");
  EXPECT_EQ(replace_invalid_subparts("\xE0\x80"), mark + mark) << "0x80 cannot follow 0xE0";
  EXPECT_EQ(replace_invalid_subparts("\xED\xA0\x80"), mark + mark + mark) << "a surrogate";
  EXPECT_EQ(replace_invalid_subparts("\xF4\x90\x80\x80"), mark + mark + mark + mark) << "beyond U+10FFFF";
  EXPECT_EQ(replace_invalid_subparts(""), "");
}

}  // namespace
}  // namespace quench
