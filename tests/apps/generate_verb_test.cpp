// The verb generate, as a user meets it.

#include <gmock/gmock.h>

#include <limits>

#include "core/json/json.h"
#include "tests/apps/nonfinite_model.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;
using testing::TempDir;

class GenerateVerb : public ::testing::Test {
 protected:
  Outcome generate(std::vector<std::string> more, const std::string& model = {}) {
    std::vector<std::string> arguments{"generate",     "--device", "cpu",
                                       "--ignore-eos", "--model",  model.empty() ? model_.string() : model};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder_.path(), arguments);
  }

  TempDir folder_;
  // Context of 128 tokens; a text begins with a token of its own.
  std::filesystem::path model_ = testing::source_dir() / "tests/train/rolling_likelihood/bos";
};

TEST_F(GenerateVerb, GoesToTheEndOfTheContextUnlessAskedOtherwise) {
  const Outcome whole = generate({"--prompt", "The ferry", "--json"});
  ASSERT_EQ(whole.status, 0) << whole.errors;
  const Json result = Json::parse(whole.output);
  EXPECT_EQ(result.at("tokens").as_array().size() + static_cast<std::size_t>(result.at("prompt_tokens").as_int()),
            128u);
  EXPECT_EQ(result.at("ended_by").as_string(), "the end of the model's context of 128 tokens");
  EXPECT_THAT(generate({"--prompt", "The ferry"}).errors,
              HasSubstr("ended by the end of the model's context of 128 tokens"));

  const Outcome few = generate({"--prompt", "The ferry", "--max-new-tokens", "3"});
  EXPECT_EQ(few.status, 0);
  EXPECT_THAT(few.errors, HasSubstr("3 new tokens"));
  EXPECT_THAT(few.errors, HasSubstr("ended by --max-new-tokens"));
}

TEST_F(GenerateVerb, MoreThanFitsIsExplainedWhereItWasAskedFor) {
  const Outcome many = generate({"--prompt", "The ferry", "--max-new-tokens", "128"});
  EXPECT_EQ(many.status, 2);
  EXPECT_THAT(many.errors, HasSubstr("--max-new-tokens 128: behind the prompt of"));
  EXPECT_THAT(many.errors, HasSubstr("context of 128 has room for"));
  const Outcome full = generate({"--prompt", std::string(2000, 'x')});
  EXPECT_EQ(full.status, 2);
  EXPECT_THAT(full.errors, HasSubstr("leaves no room in the model's context of 128"));
}

// With both streams in one place, what is said about the text stands on a line of its own behind it.
TEST_F(GenerateVerb, StatisticsFollowTheTextOnALineOfTheirOwn) {
  const std::string command = testing::program_path() + " generate --device cpu --model " + model_.string() +
                              " --prompt 'The ferry' --max-new-tokens 5 --ignore-eos > " +
                              (folder_ / "both.txt").string() + " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string both = testing::read_file(folder_ / "both.txt");
  const std::size_t statistics = both.find(" prompt tokens in ");
  ASSERT_NE(statistics, std::string::npos) << both;
  const std::size_t line = both.rfind('\n', statistics);
  ASSERT_NE(line, std::string::npos) << both;
  EXPECT_LT(both.find("The ferry"), line);
  EXPECT_EQ(both.find_first_not_of("0123456789", line + 1), statistics) << both;
  EXPECT_EQ(both.find('\n', statistics), both.size() - 1) << both;
}

TEST_F(GenerateVerb, AModelThatIsNotFiniteFails) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    testing::make_nonfinite_model(model_, folder_ / "broken", value);
    for (const std::string temperature : {"0", "1"}) {
      const Outcome outcome = generate({"--prompt", "The ferry", "--temperature", temperature}, "broken");
      EXPECT_EQ(outcome.status, 1) << outcome.output;
      EXPECT_THAT(outcome.errors, HasSubstr("not finite"));
    }
  }
}

}  // namespace
}  // namespace quench
