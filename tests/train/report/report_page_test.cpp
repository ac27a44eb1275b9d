// The page that a report is: its frame, and the files it is written to.

#include <gmock/gmock.h>

#include "core/system/check.h"
#include "tests/train/report/page_checks.h"
#include "tests/train/report/report_folder.h"
#include "train/report/report.h"

namespace quench {
namespace {

using testing::check_self_contained;
using testing::count_of;
using ::testing::HasSubstr;
using testing::page_of;

class ReportPage : public testing::ReportFolder {
 protected:
  std::string page(std::span<const std::filesystem::path> attached = {}) {
    const RunData run = load_run(dir_.path());
    std::string html = render_report({&run, 1}, attached);
    check_self_contained(html);
    return html;
  }
};

TEST_F(ReportPage, IsTheTemplateWithTheDataOfTheRun) {
  write("metrics.jsonl", "{\"step\":1,\"loss\":2}\n");
  const std::string html = page();
  const Json data = Json::parse(page_of(html).data);
  ASSERT_EQ(data.at("runs").as_array().size(), 1u);
  EXPECT_EQ(data.at("runs").as_array()[0], this->data());
  EXPECT_EQ(data.at("attached").as_array().size(), 0u);
  EXPECT_EQ(count_of(std::string(page_template()), "@DATA@"), 1u);
  EXPECT_THAT(html, ::testing::StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(html, HasSubstr("<noscript>"));
}

TEST_F(ReportPage, HostileTextsAreNoMarkup) {
  const std::string evil = "</title></style><script>alert(1)</script><!--<img src=x onerror=y>\\\" ' & \\u0000 @DATA@";
  write("metrics.jsonl", "{\"step\":1,\"loss\":1," + ("\"" + evil + "\"") + ":2}\n");
  write("evaluations.jsonl", "{\"step\":1,\"name\":\"" + evil + "\",\"values\":{\"" + evil + "\":1}}\n");
  write("samples.jsonl", "{\"step\":1,\"prompt\":\"" + evil + "\",\"text\":\"" + evil + "\"}\n");
  write("config.json", "{\"run\":{\"name\":\"" + evil + "\"},\"" + evil + "\":\"" + evil + "\",\"s\":{\"" + evil +
                           "\":[\"" + evil + "\"]}}");
  write("environment.json", "{broken " + evil);
  const std::string html = page();
  EXPECT_EQ(html.find('\0'), std::string::npos);
  EXPECT_THAT(html, HasSubstr("\\u003cscript>alert(1)"));
  const Json run = Json::parse(page_of(html).data).at("runs").as_array()[0];
  EXPECT_THAT(run.at("name").as_string(), ::testing::StartsWith("</title></style><script>"));
  EXPECT_THAT(run.at("notes").dump(), HasSubstr("environment.json"));
}

TEST_F(ReportPage, NamesOfNoCharactersAreReplaced) {
  write("a\xff/metrics.jsonl", "{\"step\":1,\"loss\":2}\n");
  const RunData run = load_run(dir_.path() / "a\xff");
  const std::string html = render_report({&run, 1});
  check_self_contained(html);
  EXPECT_THAT(page_of(html).data, HasSubstr("\"name\":\"a\\ufffd\""));
}

TEST_F(ReportPage, IsWrittenOverAnOlderOne) {
  write("metrics.jsonl", "{\"step\":1,\"loss\":2}\n");
  const auto output = dir_.path() / "report.html";
  testing::write_file(output, "old");
  EXPECT_FALSE(is_report(output));
  EXPECT_EQ(write_report(dir_.path(), output).last_step, 1);
  EXPECT_EQ(testing::read_file(output), page());
  EXPECT_TRUE(is_report(output));
}

TEST_F(ReportPage, HoldsAttachedTexts) {
  write("metrics.jsonl", "{\"step\":1,\"loss\":2}\n");
  const std::vector<std::filesystem::path> attached = {dir_.path() / "comparison.txt", dir_.path() / "sample.txt"};
  testing::write_file(attached[0], "model  perplexity\n<a>    4.5\n");
  testing::write_file(attached[1], "The secret of\n");
  const auto output = dir_.path() / "report.html";
  write_report(dir_.path(), output, attached);
  const std::string html = testing::read_file(output);
  EXPECT_EQ(Json::parse(page_of(html).data).at("attached").dump(),
            R"([["comparison","model  perplexity\n<a>    4.5\n"],["sample","The secret of\n"]])");
  EXPECT_THROW(write_report(dir_.path(), output, std::vector<std::filesystem::path>{dir_.path() / "none.txt"}), Error);
  testing::write_file(attached[1], std::string((std::size_t{1} << 20) + 1, 'x'));
  EXPECT_THROW(write_report(dir_.path(), output, attached), Error);
  EXPECT_EQ(testing::read_file(output), html);
}

TEST(Report, AMissingFolderIsNamed) {
  try {
    write_report("no/such/run", "report.html");
    FAIL() << "reported a run that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_THAT(error.what(), HasSubstr("no/such/run"));
  }
}

TEST(Report, AFolderThatIsNoRunIsRefusedAndStaysAsItIs) {
  const testing::TempDir folder;
  testing::write_file(folder / "config.json", R"({"model_type":"llama"})");
  EXPECT_THROW((void)load_run(folder.path()), Error);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace quench
