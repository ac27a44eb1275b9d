#include "core/system/enum_names.h"

#include <gmock/gmock.h>

namespace quench {
namespace {

enum class Colour { red, blue, nameless };

}  // namespace

template <>
struct EnumNames<Colour> {
  static constexpr EnumTable<Colour, 2> values = {{{Colour::blue, "blue"}, {Colour::red, "red"}}};
};

namespace {

TEST(EnumNames, FollowTableOrder) {
  EXPECT_THAT(enum_names<Colour>(), ::testing::ElementsAre("blue", "red"));
  EXPECT_EQ(enum_name(Colour::red), "red");
  EXPECT_EQ(enum_name(Colour::nameless), "unknown");
  EXPECT_EQ(require_enum<Colour>("red", "--colour"), Colour::red);
}

TEST(EnumNames, UnknownWordsAreRefusedWithTheKnownOnes) {
  for (const std::string word : {"green", "", "Red", "unknown"}) {
    try {
      (void)require_enum<Colour>(word, "--colour");
      ADD_FAILURE() << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      EXPECT_EQ(std::string(error.what()), "--colour '" + word + "' is unknown; known: blue, red");
    }
  }
}

}  // namespace
}  // namespace quench
