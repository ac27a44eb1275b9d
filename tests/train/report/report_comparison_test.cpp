#include "train/report/comparison.h"

#include <gmock/gmock.h>

#include "core/system/check.h"
#include "tests/testing.h"
#include "train/report/report.h"
#include "train/report/report_facts.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Comparison : public ::testing::Test {
 protected:
  std::filesystem::path add(const std::string& name, const std::string& lr, double loss) {
    const auto folder = dir_ / name;
    std::filesystem::create_directories(folder / "metrics");
    std::string metrics;
    for (int step = 1; step <= 50; ++step)
      metrics +=
          fmt::format("{{\"step\":{},\"total_steps\":50,\"time\":{},\"loss\":{},\"lr\":{},\"tokens_seen\":{}}}\n", step,
                      1000 + step, loss + 1.0 / step, lr, step * 100);
    testing::write_file(folder / "metrics/metrics.jsonl", metrics);
    testing::write_file(folder / "metrics/evaluations.jsonl",
                        fmt::format("{{\"step\":25,\"name\":\"validation\",\"values\":{{\"loss\":{}}}}}\n"
                                    "{{\"step\":50,\"name\":\"validation\",\"values\":{{\"loss\":{}}}}}\n",
                                    loss - 0.5, loss));
    testing::write_file(folder / "config.json",
                        R"({"run":{"name":")" + name + R"(","folder":")" + folder.string() +
                            R"("},"model":{"preset":"llama-110m"},"training":{"dtype":"bf16","master_dtype":"f32"},)" +
                            R"("recipe":{"name":"float8_rowwise"},"optimizer":{"lr":)" + lr + "}}");
    testing::write_file(
        folder / "environment.json",
        R"({"quench":"0.1.0","compiler":"g++ 12","host":"box","process":7,"device_name":"A fast chip"})");
    return folder;
  }

  testing::TempDir dir_;
};

TEST_F(Comparison, OnePageHasCurvesFiguresAndDifferences) {
  const std::vector<std::filesystem::path> folders{add("slow", "0.001", 2), add("fast", "0.01", 1)};
  const auto output = dir_ / "page.html";
  EXPECT_EQ(write_comparison(folders, output).size(), 2u);
  const std::string html = testing::read_file(output);
  for (const char* part : {"2 runs compared", "id=\"loss-log\"", "Validation loss", "Settings that differ",
                           "optimizer.lr", "<td class=\"data\">0.001</td><td class=\"data\">0.01</td>",
                           "1.5000 (ppl 4.4817) at 25", "2.0000 (ppl 7.3891) at 50", "float8_rowwise", "A fast chip"})
    EXPECT_THAT(html, HasSubstr(part));
  EXPECT_THAT(html, Not(HasSubstr("<td class=\"key\">run.folder</td>"))) << "differs always";
  EXPECT_THAT(html, Not(HasSubstr("<td class=\"key\">training.dtype</td>"))) << "equal";
  for (const char* outside : {"<script", "http://", "https://", " src="}) EXPECT_THAT(html, Not(HasSubstr(outside)));
}

TEST_F(Comparison, PreferenceLossesHaveNoPerplexity) {
  const std::vector<std::filesystem::path> folders{add("one", "0.001", 2), add("two", "0.01", 1)};
  for (const auto& folder : folders)
    testing::write_file(folder / "metrics/evaluations.jsonl",
                        "{\"step\":25,\"name\":\"validation\",\"values\":{\"loss\":0.5,\"rewards/margins\":1}}\n");
  const auto output = dir_ / "page.html";
  (void)write_comparison(folders, output);
  EXPECT_THAT(testing::read_file(output), ::testing::AllOf(HasSubstr("0.5000 at 25"), Not(HasSubstr("ppl "))));
  (void)write_report(folders.front(), dir_ / "one.html");
  EXPECT_THAT(testing::read_file(dir_ / "one.html"), ::testing::AllOf(HasSubstr("at step 25"), Not(HasSubstr("ppl "))));
}

TEST_F(Comparison, RunsOfOneNameAreCalledByTheirFolders) {
  std::filesystem::create_directories(dir_ / "other");
  const auto a = add("run", "0.001", 2);
  std::filesystem::rename(a, dir_ / "other/run");
  const std::vector<std::filesystem::path> folders{add("run", "0.001", 2), dir_ / "other/run"};
  (void)write_comparison(folders, dir_ / "page.html");
  const std::string html = testing::read_file(dir_ / "page.html");
  EXPECT_THAT(html, HasSubstr((dir_ / "other/run").string()));
  EXPECT_THAT(html, HasSubstr("No setting differs"));
}

TEST_F(Comparison, HostileNamesStayText) {
  const auto folder = add("a", "0.001", 2);
  testing::write_file(folder / "config.json", R"({"run":{"name":"<script>x</script>"},"<b>":"<i>"})");
  const std::vector<std::filesystem::path> folders{folder, add("b", "0.001", 2)};
  (void)write_comparison(folders, dir_ / "page.html");
  const std::string html = testing::read_file(dir_ / "page.html");
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("<i>")));
}

TEST_F(Comparison, TakesTwoToEightFolders) {
  const auto a = add("a", "0.001", 2);
  const auto refused = [&](const std::vector<std::filesystem::path>& folders, const std::string& what) {
    try {
      (void)write_comparison(folders, dir_ / "page.html");
      ADD_FAILURE() << "compared";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
    EXPECT_FALSE(std::filesystem::exists(dir_ / "page.html"));
  };
  refused({a}, "between 2 and 8");
  refused({a, a}, "named twice");
  refused({a, dir_ / "absent"}, "absent");
}

TEST_F(Comparison, FactsAreModelPrecisionHardwareAndVersions) {
  const auto facts = run_facts(load_run(add("a", "0.001", 2)));
  ASSERT_EQ(facts.size(), 4u);
  EXPECT_THAT(facts[0].second, HasSubstr("llama-110m, "));
  EXPECT_THAT(facts[0].second, HasSubstr("M parameters, 12 layers of width 768"));
  EXPECT_EQ(facts[1].second, "recipe float8_rowwise, parameters bf16, master weights f32");
  EXPECT_EQ(facts[2].second, "A fast chip, on box");
  EXPECT_EQ(facts[3].second, "quench 0.1.0, g++ 12");
}

// Where a run used a model folder, the copy of its config in the run folder tells what it was.
TEST_F(Comparison, TheModelOfAFolderIsThatOfTheRunFolder) {
  const auto folder = add("a", "0.001", 2);
  testing::write_file(folder / "config.json", R"({"model":{"path":"/absent/models/x"}})");
  EXPECT_EQ(run_facts(load_run(folder)).front().second, "/absent/models/x");
  std::filesystem::create_directories(folder / "model");
  testing::write_file(folder / "model/config.json", R"({"model_type":"llama","vocab_size":100,"hidden_size":16,
    "intermediate_size":24,"num_hidden_layers":3,"num_attention_heads":2,"max_position_embeddings":8})");
  EXPECT_THAT(run_facts(load_run(folder)).front().second, HasSubstr("3 layers of width 16"));
  testing::write_file(folder / "model/config.json", R"({"model_type":"llama","hidden_size":"<b>"})");
  EXPECT_EQ(run_facts(load_run(folder)).front().second, "/absent/models/x") << "damaged";
}

TEST(Report, AFolderThatIsNoRunIsRefusedAndStaysAsItIs) {
  const testing::TempDir folder;
  testing::write_file(folder / "config.json", R"({"model_type":"llama"})");
  EXPECT_THROW((void)load_run(folder.path()), Error);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace quench
