// Plug-ins, through the program.

#include <gmock/gmock.h>

#include "tests/apps/run_project.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::plugin_path;
using testing::read_file;

class Plugin : public testing::RunProject {
 protected:
  [[nodiscard]] static std::string int3() { return plugin_path("int3_rows").string(); }
  [[nodiscard]] static std::vector<std::string> train(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"train", "run.json", "--recipe.name=int3_rows", "--training.steps=20",
                               "--checkpoint.keep_latest=0", "--lr_schedule.name=constant"});
    return more;
  }
  [[nodiscard]] static std::vector<std::string> loaded(std::vector<std::string> words) {
    words.insert(words.begin(), {"--plugin", int3()});
    return words;
  }
  // The run "run", with its plug-in in the config.
  void name_in_config() {
    Json config = read_json("run.json");
    Json section = config.at("run");
    section.set("plugins", Json::Array{int3()});
    config.set("run", section);
    testing::write_file(work() / "run.json", config.dump());
  }
  void expect_refused(const std::vector<std::string>& words, const ::testing::Matcher<std::string>& message) const {
    const Outcome outcome = run(words);
    EXPECT_NE(outcome.status, 0);
    EXPECT_LT(outcome.status, 128) << "ended by a signal";
    EXPECT_THAT(outcome.errors, message);
  }
};

TEST_F(Plugin, RecipeTrainsResumesAndIsRecorded) {
  expect_ok(loaded(train()));
  expect_ok(loaded(train({"--run.folder=two", "--training.steps=10"})));
  // Without the plug-in, a resumed run names it.
  expect_refused(train({"--run.folder=two"}),
                 AllOf(HasSubstr("recipe.name"), HasSubstr("libint3_rows.so, which is not loaded"),
                       HasSubstr("quench --plugin " + int3())));
  expect_refused(train({"--run.folder=two", "--recipe.name=bf16"}),
                 HasSubstr("the run was trained with plug-in 'int3_rows' 0.3, which is not loaded"));
  expect_ok(loaded(train({"--run.folder=two"})));
  EXPECT_EQ(read_file(work() / "run/checkpoints/step-20/rank-0.bin"),
            read_file(work() / "two/checkpoints/step-20/rank-0.bin"));
  const Outcome inspected = run({"inspect", "run/checkpoints/step-20"});
  EXPECT_EQ(inspected.status, 0) << inspected.errors;
  EXPECT_THAT(inspected.output,
              AllOf(HasSubstr("plugins"), HasSubstr("int3_rows"), HasSubstr("0.3"), HasSubstr(int3())));
  EXPECT_EQ(run({"inspect", "run"}).status, 0);
  const std::vector<std::string> evaluate = {"eval", "--model", "run", "--data", "held_out.txt"};
  expect_refused(evaluate, AllOf(HasSubstr("plug-in 'int3_rows' 0.3"), HasSubstr("quench --plugin " + int3())));
  expect_ok(loaded(evaluate));
}

TEST_F(Plugin, ConfigNamesIt) {
  name_in_config();
  expect_ok(train());
  EXPECT_EQ(read_json("run/config.json").at("run").at("plugins").dump(), Json(Json::Array{int3()}).dump());
  expect_ok(train({"--training.steps=21"}));
  // By an override, relative to the working folder.
  std::filesystem::copy(int3(), work() / "copy.so");
  testing::write_file(work() / "run.json", read_file(work() / "run.json"));
  expect_ok(train({"--run.folder=two", R"(--run.plugins=["copy.so"])"}));
  expect_refused(train({R"(--run.plugins=["gone.so"])"}),
                 AllOf(HasSubstr("run.plugins"), HasSubstr("plug-in gone.so does not exist")));
  expect_refused(train({"--run.plugins=3"}), HasSubstr("run.plugins"));
}

// Another person's config is looked at before it is run.
TEST_F(Plugin, VerbsThatLookAtAConfigDoNotRunItsPlugins) {
  const std::string throwing = plugin_path("throwing_constructor").string();  // ends the process that loads it
  Json config = read_json("run.json");
  Json section = config.at("run");
  section.set("plugins", Json::Array{throwing});
  config.set("run", section);
  testing::write_file(work() / "theirs.json", config.dump());
  for (const std::vector<std::string>& words : {std::vector<std::string>{"config", "check", "theirs.json"},
                                                {"config", "diff", "run.json", "theirs.json"},
                                                {"config", "print", "theirs.json"}}) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 0) << words[1] << outcome.errors;
    EXPECT_THAT(outcome.errors, AllOf(HasSubstr(throwing + " is not loaded"), HasSubstr("quench --plugin")));
  }
  name_in_config();
  const std::vector<std::string> check = {"config", "check", "run.json", "--recipe.name=int3_rows"};
  expect_refused(check, AllOf(HasSubstr("int3_rows"), HasSubstr("is not loaded, and what it registers is unknown")));
  const Outcome trusted = run(loaded(check));
  EXPECT_EQ(trusted.status, 0) << trusted.errors;
  EXPECT_THAT(trusted.errors, Not(HasSubstr("not loaded")));
}

TEST_F(Plugin, WorkersOfALaunchedRunHaveIt) {
  expect_ok({"--plugin=" + int3(), "run", "--standalone", "--nproc-per-node", "2", "train", "run.json",
             "--recipe.name=int3_rows", "--training.steps=4"});
  EXPECT_THAT(read_file(work() / "run/config.json"), HasSubstr("int3_rows"));
}

TEST_F(Plugin, RefusalsNameFileAndRemedy) {
  expect_refused({"--plugin", "gone.so", "train", "run.json"}, HasSubstr("plug-in gone.so does not exist"));
  expect_refused({"--plugin"}, HasSubstr("--plugin needs the file of a shared library"));
  expect_refused({"--plugin", plugin_path("old_release").string(), "train", "run.json"},
                 AllOf(HasSubstr("was built for release 0.1.3"), HasSubstr("build it anew")));
  expect_refused({"--plugin", plugin_path("taken_recipe").string(), "train", "run.json"},
                 AllOf(HasSubstr("libtaken_recipe.so"), HasSubstr("'mxfp8' stands for more than one recipe")));
  expect_refused({"--plugin", testing::fake_library_path(), "train", "run.json"}, HasSubstr("is no plug-in"));
  expect_refused({"--plugin", plugin_path("unresolved").string(), "train", "run.json"},
                 HasSubstr("function_of_no_release"));
  testing::write_file(
      work() / "taken.json",
      Json(Json::Object{{"run", Json::Object{{"plugins", Json::Array{plugin_path("taken_recipe").string()}}}}}).dump());
  expect_refused({"train", "taken.json"},
                 AllOf(HasSubstr("run.plugins"), HasSubstr("'mxfp8' stands for more than one recipe")));
  // Options after the verb are the verb's.
  expect_refused({"train", "run.json", "--plugin", int3()}, HasSubstr("--plugin"));
  EXPECT_THAT(run({"--help"}).output, HasSubstr("--plugin"));
  EXPECT_THAT(run({"--plugin", int3(), "config", "schema"}).output, HasSubstr("int3_rows"));
  EXPECT_THAT(run({"config", "schema"}).output, Not(HasSubstr("int3_rows")));
}

}  // namespace
}  // namespace quench
