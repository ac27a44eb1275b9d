#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/system/check.h"
#include "tests/testing.h"
#include "tests/train/report/page_checks.h"
#include "train/report/html.h"
#include "train/report/report.h"

namespace quench {
namespace {

using testing::check_self_contained;
using testing::check_tags;
using testing::count_of;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ReportHtml, EscapesEverythingThatMarkupReads) {
  EXPECT_EQ(escape_html("<a href=\"x\">'&'</a>"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(escape_html("tab\tline\nend"), "tab\tline\nend");
  EXPECT_EQ(escape_html(std::string_view("a\0b\x1b\x7f\xff\xC2\x85", 8)),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(escape_html("äöü 東京 🦙"), "äöü 東京 🦙");
  EXPECT_EQ(shorten("äöü", 3), "ä…");
  EXPECT_EQ(shorten("abc", 3), "abc");
}

class ReportFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const auto path = dir_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    testing::write_file(path, text);
  }
  std::string report() {
    const std::string html = render_report(load_run(dir_.path()));
    check_tags(html);
    check_self_contained(html);
    return html;
  }
  testing::TempDir dir_;
};

TEST_F(ReportFolder, ShowsWhatARunLeaves) {
  write("metrics/metrics.jsonl",
        "{\"step\":1,\"total_steps\":3,\"time\":1700000000,\"loss\":4.5,\"grad_norm\":1,\"lr\":0.001,"
        "\"tokens_per_second\":1000,\"tflops\":1.25,\"mfu\":0.5,\"memory_bytes\":1073741824,\"memory_share\":0.25,"
        "\"step_ms\":10,\"data_share\":0.02,\"tokens_seen\":100,\"skipped_steps\":0,\"nonfinite\":false}\n"
        "{\"step\":2,\"total_steps\":3,\"time\":1700000060,\"loss\":null,\"skipped_steps\":1,\"nonfinite\":true}\n"
        "{\"step\":3,\"total_steps\":3,\"time\":1700003720,\"loss\":3.25,\"skipped_steps\":1,\"nonfinite\":false}\n");
  write(
      "metrics/evaluations.jsonl",
      "{\"step\":2,\"name\":\"validation\",\"values\":{\"loss\":3.0,\"perplexity\":20.1},\"tokens\":50,\"seconds\":1}\n"
      "{\"step\":3,\"name\":\"validation\",\"values\":{\"loss\":3.5,\"perplexity\":33.1},\"tokens\":50,\"seconds\":1}\n"
      "{\"step\":3,\"name\":\"hellaswag\",\"values\":{\"acc_norm\":0.3125},\"tokens\":1234,\"seconds\":2}\n");
  write("metrics/samples.jsonl", "{\"step\":3,\"prompt\":\"Once\",\"text\":\" upon a time\"}\n");
  write("config.json",
        "{\"run\":{\"name\":\"tiny\"},\"training\":{\"steps\":3,\"filter\":{\"exclude\":[\"lm_head\"]}}}");
  write("environment.json", "{\"version\":\"0.1\",\"device\":{\"cores\":2}}");
  write("checkpoints/step-3/model.safetensors", std::string(2048, 'x'));
  write("checkpoints/step-3.tmp-1/x", "x");
  write("checkpoints/step-x/x", "x");
  const std::string html = report();
  EXPECT_THAT(html, HasSubstr("<h1>tiny</h1>"));
  EXPECT_THAT(html, HasSubstr("2023-11-14 22:13 UTC to 2023-11-14 23:15 UTC"));
  EXPECT_THAT(html, HasSubstr("complete"));
  EXPECT_THAT(html, HasSubstr("3.2500"));     // last loss
  EXPECT_THAT(html, HasSubstr("at step 2"));  // best validation
  EXPECT_THAT(html, HasSubstr("1:02:00"));    // wall time
  EXPECT_THAT(html, HasSubstr("1.00 GiB"));
  EXPECT_THAT(html, HasSubstr("step 2: not finite"));
  EXPECT_THAT(html, HasSubstr("0.3125"));
  EXPECT_THAT(html, HasSubstr("<span class=\"prompt\">Once</span> upon a time"));
  EXPECT_THAT(html, HasSubstr("filter.exclude"));
  EXPECT_THAT(html, HasSubstr("[&quot;lm_head&quot;]"));
  EXPECT_THAT(html, HasSubstr("<td>step-3</td><td class=\"number\">3</td><td class=\"number\">2.0 KiB</td>"));
  EXPECT_EQ(count_of(html, "<td>step-"), 1u);
  for (const char* section : {"curves", "evaluations", "samples", "checkpoints", "config", "environment"})
    EXPECT_THAT(html, HasSubstr("<h2 id=\"" + std::string(section) + "\">"));
}

std::string health_line(int step, const std::string& layers) {
  return "{\"step\":" + std::to_string(step) + ",\"time\":1700000000,\"layers\":{" + layers + "}}\n";
}
std::string health_value(const std::string& format, const std::string& sqnr, bool nonfinite = false) {
  return "{\"format\":\"" + format + "\",\"amax\":1,\"sqnr_db\":" + sqnr +
         ",\"saturated\":0,\"underflow\":0.01,\"nonfinite\":" + (nonfinite ? "true}" : "false}");
}

TEST_F(ReportFolder, HealthIsAHeatMapForEveryOperand) {
  std::string log;
  const char* layers[] = {"model.layers.0.self_attn.qkv_proj", "model.layers.0.mlp.down_proj", "lm_head"};
  for (int step = 10; step <= 50; step += 10) {
    std::string members;
    for (const char* layer : layers) {
      const bool down = layer == layers[1];
      members += std::string(members.empty() ? "" : ",") + "\"" + layer +
                 "\":{\"input\":" + health_value("e4m3", down && step >= 40 ? "24.5" : "31.5") +
                 ",\"weight\":" + health_value("e4m3", layer == layers[2] ? "null" : "31.7") +
                 ",\"output_gradient\":" + health_value("e5m2", "25.6", down && step == 50) + "}";
    }
    log += health_line(step, members);
  }
  write("metrics/health.jsonl", log);
  const std::string html = report();
  EXPECT_THAT(html, HasSubstr("<h2 id=\"health\">Numerical health</h2>"));
  EXPECT_EQ(count_of(html, "<svg"), 3u);
  for (const char* title : {"Inputs", "Weights", "Output gradients"})
    EXPECT_THAT(html, HasSubstr("<b>" + std::string(title) + "</b>"));
  EXPECT_THAT(html, HasSubstr("dB of SQNR below the 32.2 of dense e4m3 values"));
  EXPECT_THAT(html, HasSubstr("dB of SQNR below the 26.2 of dense e5m2 values"));
  // Rows are layers with short names; neighbours that look alike are one cell.
  EXPECT_EQ(count_of(html, ">0.qkv_proj</text>"), 3u);
  EXPECT_EQ(count_of(html, ">lm_head</text>"), 3u);
  EXPECT_EQ(count_of(html, "<rect class=\"h"), 4u + 3u + 4u);
  EXPECT_THAT(html, HasSubstr("<title>model.layers.0.mlp.down_proj  ·  steps 10 to 30  ·  31.5 dB  ·  1% become 0"));
  EXPECT_THAT(html, HasSubstr("<title>model.layers.0.mlp.down_proj  ·  steps 40 to 50  ·  24.5 dB"));
  EXPECT_EQ(count_of(html, "<rect class=\"h5\""), 1u);  // 7.7 dB below
  EXPECT_THAT(html, HasSubstr("<title>model.layers.0.mlp.down_proj  ·  step 50  ·  not finite</title>"));
  EXPECT_EQ(count_of(html, "<rect class=\"h7\""), 1u);
  EXPECT_THAT(html, HasSubstr("lm_head  ·  steps 10 to 50  ·  nothing lost"));
  // The worst has a card.
  EXPECT_THAT(html, HasSubstr("Lowest SQNR"));
  EXPECT_THAT(html, HasSubstr("0.down_proj, gradient, step 50"));
  EXPECT_THAT(html, HasSubstr("class=\"card bad\""));
}

TEST_F(ReportFolder, LongHealthLogsAndRepeatedStepsStayReadable) {
  std::string log;
  for (int step = 1; step <= 3000; ++step)
    log += health_line(step, "\"model.layers.0.mlp.down_proj\":{\"input\":" +
                                 health_value("e4m3", step == 1500    ? "12"
                                                      : step % 2 == 0 ? "31.9"
                                                                      : "29.9") +
                                 "}");
  // Taken back and written again.
  log += health_line(2990, "\"model.layers.0.mlp.down_proj\":{\"input\":" + health_value("e4m3", "31.6") + "}");
  write("metrics/health.jsonl", log);
  const RunData run = load_run(dir_.path());
  ASSERT_EQ(run.health.size(), 1u);
  EXPECT_EQ(run.health[0].points.size(), 2990u);
  EXPECT_EQ(run.health[0].points.back().sqnr, 31.6);
  const std::string html = report();
  EXPECT_EQ(count_of(html, "<rect class=\"h6\""), 1u) << "the one bad step is still seen";
  EXPECT_THAT(html, HasSubstr("12.0 to 31.9 dB"));
  EXPECT_LE(count_of(html, "<rect class=\"h"), 4u);
  EXPECT_THAT(html, HasSubstr("<div class=\"value\">12.0 dB</div>"));
  // Half a thousand layers.
  std::string members;
  for (int layer = 0; layer < 600; ++layer)
    members += std::string(layer == 0 ? "" : ",") + "\"model.layers." + std::to_string(layer) +
               ".mlp.down_proj\":{\"input\":" + health_value("e4m3", "31.5") + "}";
  write("metrics/health.jsonl", health_line(1, members));
  EXPECT_EQ(count_of(report(), "<rect class=\"h"), 512u);
}

TEST_F(ReportFolder, DamagedHealthIsNoTrouble) {
  write("metrics/health.jsonl",
        "{\"step\":1,\"layers\":[]}\n{\"step\":2,\"layers\":{\"a\":3,\"b\":{\"input\":4},"
        "\"<b>\":{\"input\":{\"format\":\"<i>\",\"sqnr_db\":1e300,\"saturated\":-1,\"underflow\":\"x\"},"
        "\"<u>\":{\"sqnr_db\":3}}}}\n{\"step\":3}\nnot json\n");
  const std::string html = report();
  EXPECT_THAT(html, HasSubstr("of dense &lt;i&gt; values"));
  EXPECT_THAT(html, HasSubstr("&lt;b&gt;"));
  EXPECT_THAT(html, HasSubstr("health.jsonl: skipped 1 lines"));
}

TEST_F(ReportFolder, TheShareOfLightIsShownWhereItIsNotTheMfu) {
  for (const std::string name : {"sol_fraction", "light_share"}) {  // the latter of runs of 0.2.0
    const auto line = [&](double sol) {
      return "{\"step\":1,\"loss\":1,\"tflops\":600,\"mfu\":0.6,\"" + name + "\":" + std::to_string(sol) + "}\n";
    };
    write("metrics/metrics.jsonl", line(0.6));
    EXPECT_THAT(report(), Not(HasSubstr("speed of light"))) << name;
    write("metrics/metrics.jsonl", line(0.4));
    const std::string html = report();
    EXPECT_THAT(html, HasSubstr("share of the speed of light")) << name;
    EXPECT_THAT(html, HasSubstr("MFU 60.0%, of light 40.0%, median")) << name;
  }
}

TEST_F(ReportFolder, CurvesMarkSpikesResumesAndCheckpoints) {
  write("metrics/metrics.jsonl",
        "{\"step\":1,\"loss\":4,\"grad_norm\":1,\"lr\":0.1}\n{\"step\":40,\"loss\":3,\"grad_norm\":1,\"lr\":0.1}\n");
  write("metrics/events.jsonl",
        "{\"step\":10,\"event\":\"resume\",\"message\":\"\"}\n"
        "{\"step\":20,\"event\":\"rollback\",\"message\":\"step 22: loss <nan>\"}\n"
        "{\"step\":31,\"event\":\"spike\",\"message\":\"step 31: spike: loss 9.0\"}\n"
        "{\"step\":32,\"event\":\"something else\"}\n");
  write("checkpoints/step-30/model.safetensors", "x");
  const std::string html = report();
  // Loss in two scales, gradient norm in two, learning rate.
  EXPECT_EQ(count_of(html, "<path class=\"mark checkpoint\""), 5u);
  EXPECT_EQ(count_of(html, "<path class=\"mark resume\""), 10u);
  EXPECT_EQ(count_of(html, "<path class=\"mark spike\""), 4u) << "of loss and gradient norm";
  EXPECT_THAT(html, HasSubstr("<title>step 30: checkpoint step-30</title>"));
  EXPECT_THAT(html, HasSubstr("<title>step 10: resumed from here</title>"));
  EXPECT_THAT(html, HasSubstr("<title>step 20: rolled back to here: step 22: loss &lt;nan&gt;</title>"));
  EXPECT_THAT(html, HasSubstr("<title>step 31: step 31: spike: loss 9.0</title>"));
  EXPECT_EQ(count_of(html, "<i class=\"key mark spike\"></i>spike<"), 2u);
}

TEST_F(ReportFolder, ManyMarksStaySmall) {
  write("metrics/metrics.jsonl", "{\"step\":1,\"loss\":4}\n{\"step\":40,\"loss\":3}\n");
  std::string events;
  for (int step = 1; step < 5000; ++step) events += "{\"step\":" + std::to_string(step) + ",\"event\":\"spike\"}\n";
  write("metrics/events.jsonl", events);
  EXPECT_LE(count_of(report(), "<path class=\"mark"), 400u);
}

TEST_F(ReportFolder, TheHeaderNamesAdaptersAndQuantization) {
  write("metrics/metrics.jsonl", "{\"step\":1,\"loss\":4}\n");
  write("config.json", R"({"recipe": {"name": "bf16"}, "training": {"dtype": "f32"},
    "lora": {"rank": 16, "alpha": 32.0, "base": "nf4", "dora": false},
    "export": {"format": "gguf", "scheme": "q4_k"}})");
  const std::string html = report();
  EXPECT_THAT(html, HasSubstr("<dt>Precision</dt><dd>f32 (recipe bf16, no low precision), parameters f32</dd>"));
  EXPECT_THAT(html, HasSubstr("<dt>Adapters</dt><dd>nf4 base + lora r16, alpha 32.0</dd>"));
  EXPECT_THAT(html, HasSubstr("<dt>Quantization</dt><dd>exported as q4_k (gguf)</dd>"));
  write("config.json", R"({"recipe": {"name": "qat_int4_weight_only", "weight_bits": 3, "group_size": 32}})");
  const std::string trained = report();
  EXPECT_THAT(trained,
              HasSubstr("<dt>Quantization</dt><dd>trained for qat_int4_weight_only, 3 bits, groups of 32</dd>"));
  EXPECT_THAT(trained, Not(HasSubstr("<dt>Adapters</dt>")));
}

TEST_F(ReportFolder, AnEmptyRunIsAPageThatSaysSo) {
  write("environment.json", "{}");
  const std::string html = report();
  EXPECT_THAT(html, HasSubstr("No training metrics were recorded"));
  EXPECT_THAT(html, Not(HasSubstr("<svg")));
  write("metrics/metrics.jsonl", "");
  EXPECT_THAT(report(), HasSubstr("No training metrics were recorded"));
}

TEST_F(ReportFolder, HostileTextsStayTexts) {
  const std::string evil = "</title></style><script>alert(1)</script><img src=x onerror=y>\\\" ' & \\u0000";
  write("metrics.jsonl", "{\"step\":1,\"loss\":1," + ("\"" + evil + "\"") + ":2}\n");
  write("evaluations.jsonl", "{\"step\":1,\"name\":\"" + evil + "\",\"values\":{\"" + evil +
                                 "\":1}}\n{\"step\":2,\"name\":\"" + evil + "\",\"values\":{}}\n");
  write("samples.jsonl", "{\"step\":1,\"prompt\":\"" + evil + "\",\"text\":\"" + evil + "\"}\n");
  write("config.json", "{\"run\":{\"name\":\"" + evil + "\"},\"" + evil + "\":\"" + evil + "\",\"s\":{\"" + evil +
                           "\":[\"" + evil + "\"]}}");
  write("environment.json", "{broken " + evil);
  const std::string html = render_report(load_run(dir_.path()));
  check_tags(html);
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_EQ(html.find('\0'), std::string::npos);
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_THAT(html, HasSubstr("environment.json"));  // the note about the broken file
}

TEST_F(ReportFolder, DamagedFilesAreNotedAndTheRestIsShown) {
  write("metrics/metrics.jsonl", "{\"step\":1,\"loss\":2}\nnonsense\n{\"step\":2,\"loss\":1");
  write("metrics/evaluations.jsonl", "{\"step\":1}\n{\"step\":1,\"name\":7,\"values\":[1],\"tokens\":-1}\n");
  write("config.json", "[1,2]");
  const RunData run = load_run(dir_.path());
  EXPECT_EQ(run.curve("loss").size(), 1u);
  ASSERT_EQ(run.notes.size(), 2u);
  EXPECT_EQ(run.notes[0], "metrics.jsonl: skipped 2 lines that are not records");
  EXPECT_THAT(run.notes[1], HasSubstr("config.json"));
  EXPECT_TRUE(run.config.is_null());
  EXPECT_THAT(report(), HasSubstr("skipped 2 lines"));
}

TEST_F(ReportFolder, LaterRecordsOfAStepCount) {
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

TEST_F(ReportFolder, ManyRecordsMakeASmallPage) {
  std::string text;
  for (int step = 1; step <= 100000; ++step)
    text += fmt::format("{{\"step\":{},\"loss\":{:.4f},\"grad_norm\":{:.3f},\"nonfinite\":{}}}\n", step, 3 + 8.0 / step,
                        1 + 0.5 * std::sin(step), step % 3 == 0);
  write("metrics/metrics.jsonl", text);
  EXPECT_LT(report().size(), std::size_t{1} << 20);
}

TEST_F(ReportFolder, IsWrittenOverAnOlderOne) {
  write("metrics.jsonl", "{\"step\":1,\"loss\":2}\n");
  const auto output = dir_.path() / "report.html";
  testing::write_file(output, "old");
  EXPECT_EQ(write_report(dir_.path(), output).last_step, 1);
  EXPECT_EQ(testing::read_file(output), report());
}

TEST_F(ReportFolder, ShowsAttachedTextsFirst) {
  write("metrics.jsonl", "{\"step\":1,\"loss\":2}\n");
  const std::vector<std::filesystem::path> attached = {dir_.path() / "comparison.txt", dir_.path() / "sample.txt"};
  testing::write_file(attached[0], "model  perplexity\n<a>    4.5\n");
  testing::write_file(attached[1], "The secret of\n");
  const auto output = dir_.path() / "report.html";
  write_report(dir_.path(), output, attached);
  const std::string page = testing::read_file(output);
  EXPECT_THAT(page, HasSubstr("comparison</h2>"));
  EXPECT_THAT(page, HasSubstr("model  perplexity\n&lt;a&gt;    4.5\n</pre>"));
  EXPECT_LT(page.find("4.5"), page.find("The secret of"));
  EXPECT_LT(page.find("The secret of"), page.find("Checkpoints"));
  EXPECT_THROW(write_report(dir_.path(), output, std::vector<std::filesystem::path>{dir_.path() / "none.txt"}), Error);
  EXPECT_EQ(testing::read_file(output), page);
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

}  // namespace
}  // namespace quench
