#include "train/generation/stop_texts.h"

#include <gtest/gtest.h>

namespace quench {
namespace {

std::string shown(const std::vector<std::string>& stops, const std::vector<std::string>& pieces,
                  bool* found = nullptr) {
  StopTexts texts(stops);
  std::string all;
  for (const std::string& piece : pieces) all += texts.push(piece);
  all += texts.finish();
  if (found != nullptr) *found = texts.found();
  return all;
}

TEST(StopTexts, CutBeforeTheFirst) {
  bool found = false;
  EXPECT_EQ(shown({"###"}, {"ab#", "#", "#c", "d"}, &found), "ab");
  EXPECT_TRUE(found);
  EXPECT_EQ(shown({"###"}, {"ab##", "c#"}, &found), "ab##c#");
  EXPECT_FALSE(found);
  EXPECT_EQ(shown({"later", "now"}, {"x now and later"}, &found), "x ");
  EXPECT_EQ(shown({"abab", "bc"}, {"ab", "a", "bc"}), "");
  EXPECT_EQ(shown({"abad", "bc"}, {"ab", "a", "bc"}), "aba");
  EXPECT_EQ(shown({"aab"}, {"a", "a", "a", "b", "c"}), "a");
  EXPECT_EQ(shown({}, {"any", "thing"}), "anything");
  EXPECT_EQ(shown({"\n"}, {"\xc3\xa9", "\n", "x"}), "\xc3\xa9");
}

TEST(StopTexts, ShowTextAsSoonAsItBeginsNone) {
  StopTexts texts({"User:"});
  EXPECT_EQ(texts.push("One Us"), "One ");
  EXPECT_EQ(texts.push("er"), "");
  EXPECT_EQ(texts.push("s U"), "Users ");
  EXPECT_EQ(texts.finish(), "U");
}

}  // namespace
}  // namespace quench
