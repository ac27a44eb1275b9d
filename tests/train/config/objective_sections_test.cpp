#include "train/config/objective_sections.h"

#include <gtest/gtest.h>

#include "train/config/fields/field.h"
#include "train/config/objective_table.h"
#include "train/objectives/distillation/distill_section.h"
#include "train/objectives/preference/preference_section.h"

namespace quench {
namespace {

TEST(ObjectiveSections, CopiesAreDeepAndCompareByValue) {
  ObjectiveSections sections;
  EXPECT_EQ(sections.find<PreferenceSection>(), nullptr);
  sections.emplace<PreferenceSection>().beta = 0.5;
  ObjectiveSections copy = sections;
  EXPECT_EQ(copy, sections);
  copy.find<PreferenceSection>()->beta = 0.7;
  EXPECT_EQ(sections.find<PreferenceSection>()->beta, 0.5);
  EXPECT_NE(copy, sections);
  copy = sections;
  EXPECT_EQ(copy, sections);
  copy.emplace<DistillSection>();
  EXPECT_NE(copy, sections);
  copy.erase<PreferenceSection>();
  EXPECT_EQ(copy.find<PreferenceSection>(), nullptr);
}

TEST(ObjectiveTable, TheSectionOfAConfigDecidesTheObjective) {
  RunConfig config;
  EXPECT_EQ(objective_of(config).name, "cross_entropy");
  EXPECT_EQ(answer_records(config), AnswerRecords::none);
  config.training.mtp_loss_weight = 0.1;
  EXPECT_EQ(objective_of(config).name, "mtp");
  config.training.mtp_loss_weight = 0;
  add_optional_section(config, "distill");
  EXPECT_EQ(objective_of(config).name, "distill");
  EXPECT_EQ(objective_section_of(config), "distill");
  config.objectives.erase<DistillSection>();
  config.objectives.emplace<PreferenceSection>().loss = AnswerLoss::kto;
  EXPECT_EQ(objective_of(config).name, "preference");
  EXPECT_EQ(answer_records(config), AnswerRecords::labels);
}

TEST(ObjectiveTable, FoldersOfSecondModelsAreKnown) {
  RunConfig config;
  config.objectives.emplace<PreferenceSection>().reference = "models/reference";
  ASSERT_EQ(objective_folders(config).size(), 1u);
  EXPECT_EQ(objective_folders(config)[0].key, "preference.reference");
  EXPECT_TRUE(objective_folders(config)[0].is_second_model);
  config.objectives.find<PreferenceSection>()->loss = AnswerLoss::simpo;  // reads no reference
  EXPECT_FALSE(objective_folders(config)[0].is_second_model);
}

}  // namespace
}  // namespace quench
