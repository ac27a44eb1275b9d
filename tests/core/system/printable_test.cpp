#include "core/system/printable.h"

#include <gtest/gtest.h>

namespace quench {
namespace {

TEST(Printable, KeepsTextAndWritesOutWhatATerminalObeys) {
  EXPECT_EQ(printable("plain, é, 漢字, \xF0\x9F\x98\x80\n\tnext"), "plain, é, 漢字, \xF0\x9F\x98\x80\n\tnext");
  EXPECT_EQ(printable("\x1b[2J\x07\r\x7f"), "\\x1b[2J\\x07\\x0d\\x7f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\u009b31m");  // the eight-bit form of ESC [
  EXPECT_EQ(printable("\x9B"
                      "31m"),
            "\\x9b31m");  // and without UTF-8
  EXPECT_EQ(printable("a\xE2\x80\xAE"
                      "b"),
            "a\\u202eb");  // right to left
  EXPECT_EQ(printable("\xC3"), "\\xc3");
}

TEST(Printable, FindsTheBeginningOfACharacter) {
  EXPECT_EQ(unfinished_utf8(""), 0u);
  EXPECT_EQ(unfinished_utf8("ab"), 0u);
  EXPECT_EQ(unfinished_utf8("é"), 0u);
  EXPECT_EQ(unfinished_utf8("a\xC3"), 1u);
  EXPECT_EQ(unfinished_utf8("a\xE6\xBC"), 2u);
  EXPECT_EQ(unfinished_utf8("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(unfinished_utf8("a\xF0\x9F\x98\x80"), 0u);
  EXPECT_EQ(unfinished_utf8("\x80\x80\x80\x80"), 0u);
}

}  // namespace
}  // namespace quench
