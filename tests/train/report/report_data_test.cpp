// Data of the report's page.

#include <gmock/gmock.h>

#include <cmath>

#include "core/system/check.h"
#include "tests/train/report/report_folder.h"
#include "train/metrics/health_log.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using ReportData = testing::ReportFolder;

TEST_F(ReportData, HoldWhatARunLeaves) {
  write("metrics/metrics.jsonl",
        "{\"step\":1,\"total_steps\":3,\"time\":1700000000,\"loss\":4.5,\"lr\":0.001,\"nonfinite\":false}\n"
        "{\"step\":2,\"total_steps\":3,\"time\":1700000060,\"loss\":null,\"nonfinite\":true}\n"
        "{\"step\":3,\"total_steps\":3,\"time\":1700003720,\"loss\":3.25,\"nonfinite\":false}\n");
  write("metrics/evaluations.jsonl",
        "{\"step\":2,\"name\":\"validation\",\"values\":{\"loss\":3.0,\"acc\":null},\"tokens\":50,\"seconds\":1}\n"
        "{\"step\":3,\"name\":\"export_gptq\",\"values\":{\"loss\":3.5}}\n");
  write("metrics/samples.jsonl", "{\"step\":3,\"prompt\":\"Once\",\"text\":\" upon a time\"}\n");
  write("config.json",
        "{\"run\":{\"name\":\"tiny\"},\"training\":{\"steps\":3,\"filter\":{\"exclude\":[\"lm_head\"]},\"empty\":{}}}");
  write("environment.json", "{\"version\":\"0.1\",\"device\":{\"cores\":2}}");
  write("checkpoints/step-3/model.safetensors", std::string(2048, 'x'));
  write("checkpoints/step-3.tmp-1/x", "x");
  write("checkpoints/step-x/x", "x");
  const Json data = this->data();
  EXPECT_EQ(data.at("name").as_string(), "tiny");
  EXPECT_EQ(data.at("step").as_int(), 3);
  EXPECT_EQ(data.at("total_steps").as_int(), 3);
  EXPECT_EQ(data.at("seconds").as_double(), 3720);
  EXPECT_EQ(data.at("first").as_string(), "2023-11-14 22:13 UTC");
  EXPECT_EQ(data.at("last").as_string(), "2023-11-14 23:15 UTC");
  EXPECT_EQ(data.at("curves").dump(),
            R"({"loss":{"x":[1,2,3],"y":[4.5,null,3.25],"last":[3,3.25],"median":4.5,"maximum":4.5},)"
            R"("lr":{"x":[1],"y":[0.001],"last":[1,0.001],"median":0.001,"maximum":0.001},)"
            R"("validation_loss":{"x":[2],"y":[3.0],"last":[2,3.0],"median":3.0,"maximum":3.0}})");
  EXPECT_EQ(data.at("nonfinite").dump(), R"({"total":1,"steps":[2]})");
  EXPECT_EQ(data.at("evaluations").dump(),
            R"([{"name":"validation","total":1,"rows":[{"step":2,"values":[["loss",3.0],["acc",null]],"tokens":50,)"
            R"("seconds":1.0}]},{"name":"export_gptq","total":1,"rows":[{"step":3,"values":[["loss",3.5]],"tokens":0,)"
            R"("seconds":null}]}])");
  EXPECT_EQ(data.at("exported").dump(), R"({"method":"gptq","loss":3.5})");
  EXPECT_EQ(data.at("samples").dump(), R"([[3,"Once"," upon a time"]])");
  EXPECT_EQ(data.at("config").dump(),
            R"([["run",[["name","tiny"]]],["training",[["steps","3"],["filter",[["exclude","[\"lm_head\"]"]]],)"
            R"(["empty","{}"]]]])");
  EXPECT_EQ(data.at("environment").dump(), R"([["version","0.1"],["device",[["cores","2"]]]])");
  const auto& checkpoints = data.at("checkpoints").as_array();
  ASSERT_EQ(checkpoints.size(), 1u);
  EXPECT_THAT(checkpoints[0].dump(), ::testing::StartsWith(R"(["step-3",3,2048,")"));
}

TEST_F(ReportData, LongCurvesHaveAnAverageAndFewPoints) {
  std::string log;
  for (int step = 1; step <= 100000; ++step)
    log += fmt::format("{{\"step\":{},\"loss\":{:.4f},\"lr\":{:.4f},\"grad_norm\":{:.3f},\"nonfinite\":{}}}\n", step,
                       step == 777 ? 9 : 3 + std::sin(step), 1.0 / step, 1 + 0.5 * std::sin(step), step % 3 == 0);
  write("metrics/metrics.jsonl", log);
  const Json data = this->data();
  const Json& loss = data.at("curves").at("loss");
  EXPECT_LE(loss.at("x").as_array().size(), 1002u);
  EXPECT_EQ(loss.at("maximum").as_double(), 9) << "of all points";
  EXPECT_NE(loss.at("y").dump().find("9.0"), std::string::npos) << "the spike is kept";
  const auto& average = loss.at("average").at("y").as_array();
  EXPECT_LE(average.size(), 1002u);
  for (const Json& value : average) EXPECT_NEAR(value.as_double(), 3, 0.2);
  EXPECT_EQ(data.at("curves").at("lr").find("average"), nullptr);
  EXPECT_EQ(data.at("nonfinite").at("total").as_int(), 33333);
  EXPECT_EQ(data.at("nonfinite").at("steps").as_array().size(), 200u);
  EXPECT_LT(data.dump().size(), std::size_t{200} << 10);
}

TEST_F(ReportData, CurvesAreThoseOfThePageAlone) {
  write("metrics.jsonl", "{\"step\":1,\"loss\":2,\"something\":3,\"grad_norm\":null,\"light_share\":0.5}\n");
  const Json curves = data().at("curves");
  ASSERT_EQ(curves.as_object().size(), 2u);
  EXPECT_EQ(curves.at("loss").at("last").dump(), "[1,2.0]");
  EXPECT_EQ(curves.at("sol_fraction").at("median").as_double(), 0.5) << "its name in 0.2.0";
}

TEST_F(ReportData, ManyProcessesAreTheirExtremes) {
  write("metrics.jsonl", "{\"step\":1,\"rank_ms\":[10,20]}\n");
  EXPECT_EQ(text("ranks"), R"({"extremes":false,"curves":[{"x":[1],"y":[10.0]},{"x":[1],"y":[20.0]}]})");
  write("metrics.jsonl", "{\"step\":1,\"rank_ms\":[10,20,30,40,50,60,70,80,90]}\n");
  EXPECT_EQ(text("ranks"),
            R"({"extremes":true,"curves":[{"x":[1],"y":[90.0]},{"x":[1],"y":[50.0]},{"x":[1],"y":[10.0]}]})");
}

TEST_F(ReportData, EventsOfCurvesAreThinned) {
  write("metrics/metrics.jsonl", "{\"step\":1,\"loss\":4}\n");
  std::string events = R"({"step":10,"event":"resume","message":""}
{"step":20,"event":"rollback","message":"step 22: loss <nan>"}
{"step":32,"event":"something else"}
)";
  write("metrics/events.jsonl", events);
  EXPECT_EQ(text("events"), R"([[10,"resume",""],[20,"rollback","step 22: loss <nan>"]])");
  for (int step = 40; step < 5000; ++step) events += fmt::format("{{\"step\":{},\"event\":\"spike\"}}\n", step);
  write("metrics/events.jsonl", events);
  EXPECT_LE(data().at("events").as_array().size(), 202u);
}

TEST_F(ReportData, ListsAndTextsOfAnyLengthAreBounded) {
  std::string evaluations, samples, config;
  for (int i = 1; i <= 700; ++i) {
    evaluations += fmt::format("{{\"step\":{},\"name\":\"validation\",\"values\":{{\"loss\":1}}}}\n", i);
    evaluations += fmt::format("{{\"step\":{},\"name\":\"{}\",\"values\":{{\"acc\":1}}}}\n", i, i);
    samples += fmt::format("{{\"step\":{},\"prompt\":\"\",\"text\":\"{}\"}}\n", i, std::string(9000, 'x'));
  }
  for (int i = 0; i < 5000; ++i) config += fmt::format("{}\"k{}\":\"{}\"", i == 0 ? "" : ",", i, std::string(900, 'y'));
  write("metrics/evaluations.jsonl", evaluations);
  write("metrics/samples.jsonl", samples);
  write("config.json", "{\"section\":{" + config + "}}");
  const Json data = this->data();
  const auto& names = data.at("evaluations").as_array();
  ASSERT_EQ(names.size(), 500u);
  EXPECT_EQ(names[0].at("total").as_int(), 700);
  ASSERT_EQ(names[0].at("rows").as_array().size(), 100u);
  EXPECT_EQ(names[0].at("rows").as_array().back().at("step").as_int(), 700) << "the last";
  ASSERT_EQ(data.at("samples").as_array().size(), 20u);
  EXPECT_EQ(data.at("samples").as_array()[0].as_array()[0].as_int(), 700) << "the newest first";
  EXPECT_LE(data.at("samples").as_array()[0].as_array()[2].as_string().size(), 4010u);
  const auto& leaves = data.at("config").as_array()[0].as_array()[1].as_array();
  ASSERT_EQ(leaves.size(), 2000u);
  EXPECT_LE(leaves[0].as_array()[1].as_string().size(), 510u);
}

TEST_F(ReportData, PreferenceLossesHaveNoPerplexity) {
  write("metrics/evaluations.jsonl", "{\"step\":1,\"name\":\"validation\",\"values\":{\"loss\":0.5}}\n");
  EXPECT_EQ(text("perplexity"), "true");
  write("metrics/evaluations.jsonl",
        "{\"step\":1,\"name\":\"validation\",\"values\":{\"loss\":0.5,\"rewards/margins\":1}}\n");
  EXPECT_EQ(text("perplexity"), "false");
}

TEST_F(ReportData, FactsNameAdaptersAndQuantization) {
  write("metrics/metrics.jsonl", "{\"step\":1,\"loss\":4}\n");
  write("config.json", R"({"recipe": {"name": "bf16"}, "training": {"dtype": "f32"},
    "lora": {"rank": 16, "alpha": 32.0, "base": "nf4", "dora": false},
    "export": {"format": "gguf", "scheme": "q4_k"}})");
  EXPECT_EQ(text("facts"), R"([["Precision","f32 (recipe bf16, no low precision), parameters f32"],)"
                           R"(["Adapters","nf4 base + lora r16, alpha 32.0"],)"
                           R"x(["Quantization","exported as q4_k (gguf)"]])x");
  write("config.json", R"({"recipe": {"name": "qat_int4_weight_only", "weight_bits": 3, "group_size": 32}})");
  EXPECT_EQ(text("facts"), R"([["Precision","recipe qat_int4_weight_only"],)"
                           R"(["Quantization","trained for qat_int4_weight_only, 3 bits, groups of 32"]])");
}

TEST_F(ReportData, DamagedFilesAreNotedAndTheRestIsShown) {
  write("metrics/metrics.jsonl", "{\"step\":1,\"loss\":2}\nnonsense\n{\"step\":2,\"loss\":1");
  write("metrics/evaluations.jsonl", "{\"step\":1}\n{\"step\":1,\"name\":7,\"values\":[1],\"tokens\":-1}\n");
  write("config.json", "[1,2]");
  const RunData run = load_run(dir_.path());
  EXPECT_EQ(run.curve("loss").size(), 1u);
  EXPECT_TRUE(run.config.is_null());
  const auto notes = data().at("notes").as_array();
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0].as_string(), "metrics.jsonl: skipped 2 lines that are not records");
  EXPECT_THAT(notes[1].as_string(), HasSubstr("config.json"));
  EXPECT_EQ(text("config"), "null");
}

TEST_F(ReportData, LaterRecordsOfAStepCount) {
  write("metrics.jsonl",
        "{\"step\":1,\"loss\":5,\"nonfinite\":false}\n{\"step\":2,\"loss\":null,\"nonfinite\":true}\n"
        "{\"step\":3,\"loss\":9}\n{\"step\":2,\"loss\":4,\"lr\":0.1}\n{\"step\":3,\"loss\":3}\n");
  const RunData run = load_run(dir_.path());
  const Curve& loss = run.curve("loss");
  ASSERT_EQ(loss.size(), 3u);
  EXPECT_EQ(loss[1].y, 4);
  EXPECT_EQ(loss[2].y, 3);
  EXPECT_TRUE(run.nonfinite_steps.empty());
  EXPECT_EQ(run.curve("lr").size(), 1u);
  EXPECT_TRUE(run.curve("absent").empty());
}

// A line of health.jsonl with one layer's input.
std::string health_line(int step, const std::string& layer, const std::string& sqnr) {
  return fmt::format(
      "{{\"step\":{},\"layers\":{{\"{}\":{{\"input\":{{\"format\":\"e4m3\",\"sqnr_db\":{},\"saturated\":0,"
      "\"underflow\":0.25}}}}}}}}\n",
      step, layer, sqnr);
}

TEST_F(ReportData, HealthIsAMapOfLayersBySteps) {
  write("metrics/health.jsonl",
        health_line(10, "a", "31.5") + health_line(20, "a", "30.5") + health_line(30, "a", "null") +
            health_line(40, "a", "25.5") +
            R"({"step":50,"layers":{"a":{"output_gradient":{"format":"e5m2","sqnr_db":null,"nonfinite":true}}}})"
            "\n");
  const Json health = data().at("health");
  const auto& maps = health.at("maps").as_array();
  ASSERT_EQ(maps.size(), 2u);
  EXPECT_EQ(maps[0].at("operand").as_string(), "input");
  EXPECT_EQ(maps[0].at("format").as_string(), "e4m3");
  EXPECT_NEAR(maps[0].at("dense").as_double(), 32.2, 0.05);
  EXPECT_EQ(maps[0].at("steps").dump(), "[10,20,30,40]");
  // Shades: up to 1 dB below, up to 2, nothing lost, poor.
  EXPECT_EQ(maps[0].at("rows").dump(),
            "[[\"a\",[[0,0,0,10,10,31.5,31.5,0.0,0.25],[1,1,1,20,20,30.5,30.5,0.0,0.25],"
            "[2,2,0,30,30,null,null,0.0,0.0],[3,3,5,40,40,25.5,25.5,0.0,0.25]]]]");
  EXPECT_EQ(maps[1].at("rows").dump(), "[[\"a\",[[0,0,7,50,50,null,null,0.0,0.0]]]]");
  EXPECT_EQ(health.at("worst").dump(),
            R"({"layer":"a","operand":"output_gradient","step":50,"sqnr":null,"finite":false,"poor":true})");
}

TEST_F(ReportData, LongHealthLogsAndRepeatedStepsStaySmall) {
  std::string log;
  for (int step = 1; step <= 3000; ++step)
    log += health_line(step, "model.layers.0.mlp.down_proj", step == 1500 ? "12" : step % 2 == 0 ? "31.9" : "29.9");
  log += health_line(2990, "model.layers.0.mlp.down_proj", "31.6");  // taken back and written again
  write("metrics/health.jsonl", log);
  const RunData run = load_run(dir_.path());
  ASSERT_EQ(run.health.size(), 1u);
  EXPECT_EQ(run.health[0].points.size(), 2990u);
  EXPECT_EQ(run.health[0].points.back().sqnr, 31.6);
  const Json health = data().at("health");
  const Json& map = health.at("maps").as_array()[0];
  EXPECT_EQ(map.at("steps").as_array().size(), 120u);
  const auto& cells = map.at("rows").as_array()[0].as_array()[1].as_array();
  EXPECT_LE(cells.size(), 4u) << "neighbours that look alike are one cell";
  EXPECT_TRUE(std::ranges::any_of(cells, [](const Json& cell) {
    return cell.as_array()[2] == Json(6) && cell.as_array()[5] == Json(12.0) && cell.as_array()[6] == Json(31.9);
  })) << "the one bad step is still seen";
  EXPECT_EQ(health.at("worst").at("sqnr").as_double(), 12);
  EXPECT_TRUE(health.at("worst").at("poor").as_bool());
  // Half a thousand layers.
  std::string layers;
  for (int layer = 0; layer < 600; ++layer)
    layers +=
        fmt::format("{}\"{}\":{{\"input\":{{\"format\":\"e4m3\",\"sqnr_db\":31.5}}}}", layer == 0 ? "" : ",", layer);
  write("metrics/health.jsonl", "{\"step\":1,\"layers\":{" + layers + "}}\n");
  EXPECT_EQ(data().at("health").at("maps").as_array()[0].at("rows").as_array().size(), 512u);
}

TEST_F(ReportData, DamagedHealthIsNoTrouble) {
  write("metrics/health.jsonl",
        "{\"step\":1,\"layers\":[]}\n{\"step\":2,\"layers\":{\"a\":3,\"b\":{\"input\":4},"
        "\"<b>\":{\"input\":{\"format\":\"<i>\",\"sqnr_db\":1e300,\"saturated\":-1,\"underflow\":\"x\"},"
        "\"<u>\":{\"sqnr_db\":3}}}}\n{\"step\":3}\nnot json\n");
  const Json data = this->data();
  const auto& maps = data.at("health").at("maps").as_array();
  ASSERT_EQ(maps.size(), 1u);
  EXPECT_EQ(maps[0].at("format").as_string(), "<i>");
  EXPECT_EQ(maps[0].at("rows").dump(), "[[\"<b>\",[[0,0,0,2,2,null,null,0.0,0.0]]]]");
  EXPECT_THAT(data.at("notes").dump(), HasSubstr("health.jsonl: skipped 1 lines"));
}

}  // namespace
}  // namespace quench
