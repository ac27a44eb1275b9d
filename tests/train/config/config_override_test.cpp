#include <gmock/gmock.h>

#include "config_testing.h"
#include "train/config/override.h"

namespace quench {
namespace {

using testing::complaint;
using ::testing::HasSubstr;
using testing::issues;
using testing::minimal;

TEST(ConfigOverride, EqualsAndSpaceAreTheSame) {
  EXPECT_EQ(minimal({"--training.steps=7"}).training.steps, 7);
  EXPECT_EQ(minimal({"--training.steps", "7"}).training.steps, 7);
  EXPECT_THAT(complaint({"--training.steps", "-1"}), HasSubstr("--training.steps -1: "));
  EXPECT_EQ(minimal({"--optimizer.lr", "3e-4", "--optimizer.eps=1e-6"}).optimizer.eps, 1e-6);
}

TEST(ConfigOverride, TheLastOneWins) {
  EXPECT_EQ(minimal({"--training.steps=7", "--training.steps=9"}).training.steps, 9);
  EXPECT_EQ(minimal({"--export.format=hf", "~export"}).export_model, std::nullopt);
}

TEST(ConfigOverride, ValuesMayContainEqualsSigns) {
  EXPECT_EQ(minimal({"--run.folder=a=b=c"}).run.folder, "a=b=c");
  EXPECT_EQ(minimal({"--run.folder", "a=b"}).run.folder, "a=b");
}

TEST(ConfigOverride, ListsAsCommasOrJson) {
  using Sources = std::vector<DataSource>;
  using Words = std::vector<std::string>;
  EXPECT_EQ(minimal({"--data.train=a,b"}).data.train, (Sources{{"a"}, {"b"}}));
  EXPECT_EQ(minimal({"--data.train=[\"a,b\", {\"path\": \"c\", \"weight\": 2}]"}).data.train,
            (Sources{{"a,b"}, {"c", 2}}));
  EXPECT_EQ(minimal({"--recipe.filter.exclude=lm_head,*.o_proj"}).recipe.filter.exclude,
            (Words{"lm_head", "*.o_proj"}));
  EXPECT_EQ(minimal({"--recipe.filter.exclude=[]"}).recipe.filter.exclude, Words{});
  EXPECT_EQ(minimal({"--recipe.filter.exclude="}).recipe.filter.exclude, Words{});
  EXPECT_EQ(minimal({"--optimizer.betas=0.8,0.99"}).optimizer.betas, (std::array<double, 2>{0.8, 0.99}));
  EXPECT_EQ(minimal({"--optimizer.betas=[0.8, 0.99]"}).optimizer.betas, (std::array<double, 2>{0.8, 0.99}));
  EXPECT_EQ(minimal({"--model.eos_token_id=[1,2]"}).model.fields.at("eos_token_id").dump(), "[1,2]");
  EXPECT_EQ(minimal({"--model.eos_token_id=7"}).model.fields.at("eos_token_id").as_int(), 7);
}

TEST(ConfigOverride, NullUnsetsWhatMayBeUnset) {
  EXPECT_EQ(minimal({"--training.global_batch_size=8", "--training.global_batch_size=null"}).training.global_batch_size,
            std::nullopt);
  EXPECT_EQ(minimal({"--run.folder=null"}).run.folder, "runs/run");
  EXPECT_THAT(complaint({"--training.seed=null"}), HasSubstr("got \"null\" (string)"));
}

TEST(ConfigOverride, QuotedTextIsAString) {
  EXPECT_EQ(minimal({"--run.folder=\"null\""}).run.folder, "null");
  EXPECT_EQ(minimal({"--run.folder=\"a\\tb\""}).run.folder, "a\tb");
  EXPECT_EQ(minimal({"--run.name=123"}).run.name, "123");
  EXPECT_EQ(minimal({"--run.name=true"}).run.name, "true");
  EXPECT_THAT(complaint({"--run.folder=\"open"}), HasSubstr("--run.folder=\"open: run.folder: "));
  EXPECT_THAT(complaint({"--training.steps=\"7\""}), HasSubstr("got \"7\" (string)"));
}

TEST(ConfigOverride, Flags) {
  EXPECT_TRUE(minimal({"--training.deterministic"}).training.deterministic);
  EXPECT_FALSE(minimal({"--no-checkpoint.async"}).checkpoint.async);
  EXPECT_FALSE(minimal({"--checkpoint.async=false"}).checkpoint.async);
  EXPECT_FALSE(minimal({"--checkpoint.async", "false"}).checkpoint.async);
  const RunConfig both = minimal({"--training.deterministic", "--training.steps=3"});
  EXPECT_TRUE(both.training.deterministic);
  EXPECT_EQ(both.training.steps, 3);
  EXPECT_THAT(complaint({"--no-training.steps"}), HasSubstr("--no-... is for keys that hold a boolean"));
  EXPECT_THAT(complaint({"--no-checkpoint.async=true"}), HasSubstr("--no-... takes no value"));
  EXPECT_THAT(complaint({"--no-checkpoint.asnyc"}), HasSubstr("(did you mean \"no-checkpoint.async\"?)"));
  EXPECT_THAT(complaint({"--checkpoint.async=yes"}), HasSubstr("expected boolean, got \"yes\" (string)"));
}

const char* const kToRemoveFrom = R"({"model": {"preset": "tiny"}, "data": {"train": "a.bin", "seq_len": 64},
      "training": {"steps": 9, "seed": 1}, "recipe": {"name": "float8_rowwise", "filter": {"include": ["a"], "exclude": ["b"]}},
      "export": {"format": "hf"}, "lora": {"rank": 4}})";

void expect_removed(const RunConfig& config) {
  EXPECT_EQ(config.training.seed, TrainingSection{}.seed);
  EXPECT_EQ(config.training.steps, 9);
  EXPECT_EQ(config.recipe.filter.include, std::vector<std::string>{"a"});
  EXPECT_EQ(config.recipe.filter.exclude, RecipeSection::Filter{}.exclude);
  EXPECT_FALSE(config.export_model.has_value());
  EXPECT_FALSE(config.lora.has_value());
}

TEST(ConfigOverride, TildeRemoves) {
  expect_removed(testing::parse(kToRemoveFrom,
                                {"~training.seed", "~recipe.filter.exclude", "~export", "~lora", "~metrics.jsonl"}));
  EXPECT_THAT(complaint({"~training.sed"}), HasSubstr("~training.sed: training.sed: unknown key (did you mean "
                                                      "\"training.seed\"?)"));
}

// The same in a form that no shell expands.
TEST(ConfigOverride, UnsetRemoves) {
  expect_removed(testing::parse(kToRemoveFrom,
                                {"--unset=training.seed,recipe.filter.exclude", "--unset", "export", "--unset=lora"}));
  EXPECT_EQ(minimal({"--training.seed=7", "--unset=training.seed"}).training.seed, TrainingSection{}.seed);
  EXPECT_THAT(complaint({"--unset=training.sed"}),
              HasSubstr("--unset=training.sed: training.sed: unknown key (did you mean \"training.seed\"?)"));
  EXPECT_THAT(complaint({"--unset"}), HasSubstr("--unset: needs a key: --unset=section.key"));
  EXPECT_THAT(complaint({"--unset="}), HasSubstr("needs a key"));
  EXPECT_EQ(split_arguments(std::vector<std::string>{"a.json", "--unset", "data.train", "b"}).words,
            (std::vector<std::string>{"a.json", "b"}));
}

TEST(ConfigOverride, OptionalSectionsAppearWithTheirFirstKey) {
  const RunConfig config = minimal({"--export.folder=x"});
  ASSERT_TRUE(config.export_model.has_value());
  EXPECT_EQ(config.export_model->folder, "x");
  EXPECT_EQ(config.export_model->format, "hf");
}

TEST(ConfigOverride, MalformedOverridesAreReported) {
  EXPECT_THAT(complaint({"extra"}), HasSubstr("extra: not an override: expected --section.key=value"));
  EXPECT_THAT(complaint({"-x"}), HasSubstr("-x: not an override"));
  EXPECT_THAT(complaint({"--"}), HasSubstr("--: not an override"));
  EXPECT_THAT(complaint({"--training.steps"}), HasSubstr("training.steps: needs a value: --training.steps=VALUE"));
  EXPECT_THAT(complaint({"--training.steps", "--training.seed=1"}), HasSubstr("needs a value"));
  EXPECT_THAT(complaint({"--training=3"}), HasSubstr("is a section; set one of its keys"));
  EXPECT_THAT(complaint({"--data.train=[\"a\""}), HasSubstr("--data.train=[\"a\": data.train: "));
}

TEST(ConfigOverride, AnUnknownKeyTakesItsValueWithIt) {
  const auto list = issues(testing::kMinimal, {"--training.setps", "5", "--no-such", "--training.sed=1"});
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].key, "training.setps");
  EXPECT_EQ(list[1].key, "no-such");
  EXPECT_EQ(list[2].suggestion, "training.seed");
}

TEST(ConfigOverride, AWrongValueNamesTheArgument) {
  const auto list = issues(testing::kMinimal, {"--training.steps", "many"});
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].origin, "--training.steps many");
  EXPECT_EQ(list[0].key, "training.steps");
}

TEST(ConfigOverride, ArgumentsSplitIntoWordsAndOverrides) {
  const std::vector<std::string> arguments = {"--training.steps",
                                              "5",
                                              "run.json",
                                              "--training.deterministic",
                                              "other",
                                              "~lora",
                                              "-x",
                                              "--checkpoint.async",
                                              "false",
                                              "--a.b=c",
                                              "last",
                                              "--no-metrics.jsonl",
                                              "end"};
  const SplitArguments split = split_arguments(arguments);
  EXPECT_EQ(split.words, (std::vector<std::string>{"run.json", "other", "last", "end"}));
  EXPECT_EQ(split.overrides,
            (std::vector<std::string>{"--training.steps", "5", "--training.deterministic", "~lora", "-x",
                                      "--checkpoint.async", "false", "--a.b=c", "--no-metrics.jsonl"}));
}

TEST(ConfigOverride, ABrokenSectionIsReportedOnceAndNotOverwritten) {
  const auto list = issues(R"({"model": {"preset": "tiny"}, "data": {"train": "a", "seq_len": 8}, "training": 3})",
                           {"--training.seed=1"});
  ASSERT_FALSE(list.empty());
  EXPECT_EQ(list[0].to_string(), "run.json:1:81: training: expected object, got 3 (integer)");
}

}  // namespace
}  // namespace quench
