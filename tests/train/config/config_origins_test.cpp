#include <gmock/gmock.h>

#include "core/system/key_error.h"
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
  [[nodiscard]] std::string message(const std::string& key, const std::string& reason,
                                    const std::vector<std::string>& more = {}) const {
    return message([&] { throw KeyError(ErrorCode::bad_config, key, reason); }, more);
  }

  testing::TempDir folder_;
  std::string file_ = (folder_ / "run.json").string();
};

TEST_F(ConfigOrigins, ErrorsAboutAKeySayWhereItIsSet) {
  EXPECT_EQ(message("lora.rank", "500 exceeds x"), file_ + ":3:13: lora.rank: 500 exceeds x");
  EXPECT_EQ(message("recipe.group_size", "48, as lora.rank"), file_ + ":5:28: recipe.group_size: 48, as lora.rank");
  EXPECT_EQ(message("lora.rank", "y", {"--lora.rank=7"}), "--lora.rank=7: lora.rank: y");
  EXPECT_EQ(message("lora.dropout", "y"), file_ + ":2:11: lora.dropout: y") << "its section";
}

TEST_F(ConfigOrigins, ErrorsAboutAKeyKeepTheirCode) {
  for (const ErrorCode code : {ErrorCode::bad_config, ErrorCode::unsupported}) {
    try {
      with_origins(file_, {}, [&] { throw KeyError(code, "lora.rank", "y"); });
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
    }
  }
}

TEST_F(ConfigOrigins, OtherErrorsStayAsTheyAre) {
  for (const char* text : {"no key", "lora.rank", ""})
    EXPECT_EQ(message([&] { throw Error(ErrorCode::bad_config, text); }), text);
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
