#include "train/evaluation/choice_task.h"

#include <gmock/gmock.h>

#include "tests/testing.h"
#include "train/evaluation/choice_scoring.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::write_file;

ChoiceItem item_of(std::string_view task, const std::string& record) {
  return choice_tasks().require(task, "--task").item(Json::parse(record));
}

TEST(ChoiceTask, HellaSwagCleansWhatWikiHowLeft) {
  const ChoiceItem item = item_of("hellaswag", R"({"activity_label": "Home and Garden",
    "ctx_a": "[header] How to  oil a hinge [title] Clean it.", "ctx_b": "THEN he",
    "endings": [" takes [substeps] oil. ", "a", "an open [bracket", "d"], "label": "2"})");
  EXPECT_EQ(item.context, "Home and Garden: How to oil a hinge. Clean it. Then he");
  EXPECT_THAT(item.choices, ElementsAre("takes oil.", "a", "an open [bracket", "d"));
  EXPECT_EQ(item.answer, 2u);
}

TEST(ChoiceTask, ArcIsReadInBothFormsThatItIsPublishedIn) {
  const ChoiceItem hub = item_of("arc_easy", R"({"id": "x", "question": "Why?",
    "choices": {"text": ["no", "yes", "maybe"], "label": ["1", "2", "3"]}, "answerKey": "3"})");
  const ChoiceItem original = item_of("arc_challenge", R"({"id": "x", "question": {"stem": "Why?", "choices": [
    {"text": "no", "label": "A"}, {"text": "yes", "label": "B"}, {"text": "maybe", "label": "C"}]}, "answerKey": "C"})");
  for (const ChoiceItem& item : {hub, original}) {
    EXPECT_EQ(item.context, "Question: Why?\nAnswer:");
    EXPECT_THAT(item.choices, ElementsAre("no", "yes", "maybe"));
    EXPECT_EQ(item.answer, 2u);
  }
}

class BadItems : public ::testing::Test {
 protected:
  std::string error_of(std::string_view task, const std::string& text) {
    write_file(folder_ / "items.jsonl", text);
    try {
      (void)read_choice_items(choice_tasks().require(task, "--task"), folder_ / "items.jsonl");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
      return error.what();
    }
    return "no error";
  }
  TempDir folder_;
};

TEST_F(BadItems, NameFileLineAndField) {
  const std::string good = R"({"goal": "a", "sol1": "b", "sol2": "c", "label": 1})"
                           "\n";
  EXPECT_THAT(error_of("piqa", good + "\n" + R"({"goal": "a", "sol1": "b", "label": 1})"),
              HasSubstr("items.jsonl:3: no field \"sol2\"; a record of piqa has goal, sol1, sol2, label"));
  EXPECT_THAT(error_of("piqa", good + R"({"goal": "a", "sol1": "b", "sol2": "c", "label": 2})"),
              HasSubstr("items.jsonl:2: \"label\" is 2, but there are 2 choices"));
  EXPECT_THAT(error_of("piqa", R"({"goal": "a", "sol1": "b", "sol2": "", "label": 1})"),
              HasSubstr("a choice is empty"));
  // One JSON array: its elements are the records.
  EXPECT_THAT(error_of("piqa", "[1, 2]"), HasSubstr("items.jsonl:1: the record is integer, expected object"));
  EXPECT_THAT(error_of("piqa", good + "[1, 2]"), HasSubstr("items.jsonl:2: the record is array, expected object"));
  EXPECT_THAT(error_of("piqa", "{\"goal\""), HasSubstr("items.jsonl:1"));
  EXPECT_THAT(error_of("piqa", "\n\n"), HasSubstr("holds no items of piqa"));
  EXPECT_THAT(error_of("hellaswag", R"({"activity_label": "x", "ctx_a": "a", "ctx_b": "b", "endings": ["c", "d"],
    "label": ""})"),
              HasSubstr("items.jsonl:1"));
  EXPECT_THAT(error_of("hellaswag",
                       R"({"activity_label": "x", "ctx_a": "a", "ctx_b": "b", "endings": ["c", "d"], "label": ""})"),
              HasSubstr("records of a test split have no answer"));
  EXPECT_THAT(error_of("arc_easy",
                       R"({"question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "C"})"),
              HasSubstr("\"answerKey\" is \"C\", which is none of the labels A, B"));
  EXPECT_THAT(error_of("arc_easy", R"({"question": "q", "choices": ["a", "b"], "answerKey": "C"})"),
              HasSubstr("no field \"choices\""));
}

TEST_F(BadItems, ALimitReadsNoFurther) {
  write_file(folder_ / "items.jsonl", R"({"goal": "a", "sol1": "b", "sol2": "c", "label": 1})"
                                      "\nnot JSON\n");
  EXPECT_EQ(read_choice_items(choice_tasks().require("piqa", "--task"), folder_ / "items.jsonl", 1).size(), 1u);
}

TEST(ChoiceReport, TheFirstOfEqualChoicesCountsAndErrorsAreTheSamples) {
  const std::vector<ChoiceItem> items{{"c", {"aa", "b"}, 0}, {"c", {"aa", "b"}, 1}, {"c", {"\u00e9\u00e9", "b"}, 0}};
  // By character the third is a tie.
  const std::vector<std::vector<double>> likelihoods{{-1, -1}, {-1, -2}, {-2, -1}};
  const ChoiceReport report = choice_report(items, likelihoods);
  EXPECT_EQ(report.items, 3);
  EXPECT_DOUBLE_EQ(report.accuracy, 1.0 / 3);
  EXPECT_DOUBLE_EQ(report.accuracy_error, std::sqrt(2.0 / 9 / 2));
  EXPECT_DOUBLE_EQ(report.normalized, 2.0 / 3);
  EXPECT_TRUE(std::isnan(choice_report(std::span(items).first(1), std::span(likelihoods).first(1)).accuracy_error));
}

}  // namespace
}  // namespace quench
