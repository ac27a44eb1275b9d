#include <gmock/gmock.h>

#include "core/system/check.h"
#include "tests/testing.h"
#include "tests/train/report/page_checks.h"
#include "train/report/report.h"
#include "train/report/report_facts.h"

namespace quench {
namespace {

using ::testing::HasSubstr;

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
  // Data of the runs in the page.
  Json::Array compared(const std::vector<std::filesystem::path>& folders) {
    const auto output = dir_ / "page.html";
    EXPECT_EQ(write_comparison(folders, output).size(), folders.size());
    const std::string html = testing::read_file(output);
    testing::check_self_contained(html);
    return Json::parse(testing::page_of(html).data).at("runs").as_array();
  }

  testing::TempDir dir_;
};

TEST_F(Comparison, OnePageHoldsTheDataOfAllRuns) {
  const auto runs = compared({add("slow", "0.001", 2), add("fast", "0.01", 1)});
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].at("name").as_string(), "slow");
  EXPECT_EQ(runs[1].at("name").as_string(), "fast");
  EXPECT_EQ(runs[0].at("curves").at("validation_loss").at("y").dump(), "[1.5,2.0]");
  EXPECT_EQ(runs[1].at("curves").at("loss").at("last").dump(), "[50,1.02]");
  EXPECT_NE(runs[1].at("curves").at("loss").find("average"), nullptr);
  EXPECT_EQ(runs[1].at("curves").at("tokens_seen").at("last").dump(), "[50,5000.0]");
  EXPECT_THAT(runs[1].at("config").dump(), HasSubstr(R"(["optimizer",[["lr","0.01"]]])"));
  EXPECT_THAT(runs[1].at("environment").dump(), HasSubstr("A fast chip"));
  EXPECT_EQ(runs[1].find("evaluations"), nullptr) << "a comparison does not show them";
}

TEST_F(Comparison, RunsOfOneNameAreCalledByTheirFolders) {
  std::filesystem::create_directories(dir_ / "other");
  const auto a = add("run", "0.001", 2);
  std::filesystem::rename(a, dir_ / "other/run");
  const auto b = add("run", "0.001", 2);
  const auto runs = compared({b, dir_ / "other/run"});
  EXPECT_EQ(runs[0].at("name").as_string(), b.string());
  EXPECT_EQ(runs[1].at("name").as_string(), (dir_ / "other/run").string());
}

TEST_F(Comparison, HostileNamesStayText) {
  const auto folder = add("a", "0.001", 2);
  testing::write_file(folder / "config.json", R"({"run":{"name":"</script><script>x"},"<b>":"<i>"})");
  const auto runs = compared({folder, add("b", "0.001", 2)});
  EXPECT_EQ(runs[0].at("name").as_string(), "</script><script>x");
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
  EXPECT_THAT(facts[0].second, HasSubstr(" parameters, 12 layers of width 768"));
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

}  // namespace
}  // namespace quench
