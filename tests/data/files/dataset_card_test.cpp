#include "data/files/dataset_card.h"

#include <gmock/gmock.h>

namespace quench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(DatasetCard, NamesTheFilesOfEachSplit) {
  const auto configs = card_configs(
      "---\nlicense: mit\nconfigs:\n- config_name: en\n  data_files:\n  - split: train\n    path: data/train-*\n"
      "  - split: test\n    path:\n    - \"a.parquet\"\n    - b.parquet\n  default: true\n"
      "- config_name: fr\n  data_dir: french\n- config_name: de\n  data_files: \"*.csv\"\n"
      "- config_name: it\n  data_files:\n  - one.jsonl\n  - two.jsonl\ntags:\n- chat\n---\n# A data set\nconfigs:\n");
  ASSERT_EQ(configs.size(), 4u);
  EXPECT_EQ(configs[0].name, "en");
  EXPECT_TRUE(configs[0].is_default);
  EXPECT_THAT(configs[0].splits, ElementsAre(Pair("train", ElementsAre("data/train-*")),
                                             Pair("test", ElementsAre("a.parquet", "b.parquet"))));
  EXPECT_FALSE(configs[1].is_default);
  EXPECT_EQ(configs[1].folder, "french");
  EXPECT_THAT(configs[2].splits, ElementsAre(Pair("train", ElementsAre("*.csv"))));
  EXPECT_THAT(configs[3].splits, ElementsAre(Pair("train", ElementsAre("one.jsonl", "two.jsonl"))));
}

TEST(DatasetCard, IndentedListsAndOtherCards) {
  const auto configs = card_configs(
      "---\r\nconfigs:\r\n  - config_name: default\r\n    data_files:\r\n      - split: train\r\n        path: "
      "t.jsonl\r\n---\r\n");
  ASSERT_EQ(configs.size(), 1u);
  EXPECT_TRUE(configs[0].is_default);
  EXPECT_THAT(configs[0].splits, ElementsAre(Pair("train", ElementsAre("t.jsonl"))));
  for (const char* card : {"", "# Title\nconfigs:\n- config_name: a\n", "---\nlicense: mit\n---\n", "---\nconfigs:\n",
                           "---\nconfigs: [{config_name: a}]\n---\n", "---\nconfigs:\n  config_name: a\n---\n",
                           "---\nconfigs:\n- config_name: a\n  data_files:\n    path: x\n---\n"})
    EXPECT_THAT(card_configs(card), IsEmpty()) << card;
}

}  // namespace
}  // namespace quench
