#include <gmock/gmock.h>

#include "core/system/check.h"
#include "tests/testing.h"
#include "train/check/load.h"

namespace quench {
namespace {

using ::testing::HasSubstr;

// What is found after a config was read.
class ConfigOrigins : public ::testing::Test {
 protected:
  ConfigOrigins() {
    testing::write_file(file_, "{\n  \"lora\": {\n    \"rank\": 500\n  },\n  \"recipe\": {\"group_size\": 48}\n}\n");
  }
  [[nodiscard]] std::string message(const std::function<void()>& work,
                                    const std::vector<std::string>& more = {}) const {
    try {
      with_origins(file_, more, work);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  [[nodiscard]] std::string message(ErrorCode code, const std::string& text,
                                    const std::vector<std::string>& more = {}) const {
    return message([&] { throw Error(code, text); }, more);
  }

  testing::TempDir folder_;
  std::string file_ = (folder_ / "run.json").string();
};

TEST_F(ConfigOrigins, ErrorsSayWhereTheFirstKeyThatTheyNameIsSet) {
  EXPECT_EQ(message(ErrorCode::bad_config, "lora.rank 500 exceeds x"), file_ + ":3:13: lora.rank 500 exceeds x");
  EXPECT_EQ(message(ErrorCode::unsupported, "x: recipe.group_size 48 (recipe.filter.exclude)"),
            file_ + ":5:28: x: recipe.group_size 48 (recipe.filter.exclude)");
  EXPECT_EQ(message(ErrorCode::bad_config, "lora.rank: y", {"--lora.rank=7"}), "--lora.rank=7: lora.rank: y");
  EXPECT_EQ(message(ErrorCode::bad_config, "lora.dropout: y"), file_ + ":2:11: lora.dropout: y") << "its section";
}

TEST_F(ConfigOrigins, OtherErrorsStayAsTheyAre) {
  for (const char* text : {"no key", "lora.ranks", "xlora.rank", "a.lora.rank", ""})
    EXPECT_EQ(message(ErrorCode::bad_config, text), text);
  EXPECT_EQ(message(ErrorCode::io, "lora.rank"), "lora.rank");
}

TEST_F(ConfigOrigins, IssuesWithoutAPlaceGetOne) {
  const std::string text = message([] {
    throw ConfigError({{"", "lora.rank", "is large", ""}, {"here", "recipe.group_size", "too", ""}});
  });
  EXPECT_THAT(text, HasSubstr(file_ + ":3:13: lora.rank: is large"));
  EXPECT_THAT(text, HasSubstr("here: recipe.group_size: too"));
}

}  // namespace
}  // namespace quench
