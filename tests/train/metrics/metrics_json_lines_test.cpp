#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>
#include <csignal>
#include <limits>

#include "core/system/check.h"
#include "tests/testing.h"
#include "tests/train/health/example_health.h"
#include "train/metrics/json_lines.h"
#include "train/metrics/json_lines_sink.h"
#include "train/metrics/run_files.h"

namespace quench {
namespace {

using testing::example_health;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

Json record(std::int64_t step, double loss) {
  Json result = Json::object();
  result.set("step", step);
  result.set("loss", loss);
  return result;
}

std::vector<std::int64_t> steps_of(const std::filesystem::path& path) {
  std::vector<std::int64_t> steps;
  read_json_lines(path, [&](const Json&, std::int64_t step) { steps.push_back(step); });
  return steps;
}

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(JsonLines, EveryRecordIsInTheFileBeforeTheCallReturns) {
  const TempDir dir;
  JsonLines log(dir / "m.jsonl", std::nullopt);
  log.append(record(1, 2.5));
  EXPECT_EQ(read_file(dir / "m.jsonl"), "{\"step\":1,\"loss\":2.5}\n");
  log.append(record(2, 0.1));
  EXPECT_EQ(read_file(dir / "m.jsonl"), "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":0.1}\n");
}

TEST(JsonLines, MakesItsFolder) {
  const TempDir dir;
  JsonLines log(dir.path() / "a" / "b" / "m.jsonl", std::nullopt);
  log.append(record(1, 1));
  EXPECT_EQ(steps_of(log.path()), std::vector<std::int64_t>{1});
}

TEST(JsonLines, AResumedRunDropsWhatItWillWriteAgain) {
  const TempDir dir;
  {
    JsonLines log(dir / "m.jsonl", std::nullopt);
    for (std::int64_t step = 10; step <= 70; step += 10) log.append(record(step, 1));
  }
  {
    JsonLines log(dir / "m.jsonl", 40);
    EXPECT_EQ(steps_of(log.path()), (std::vector<std::int64_t>{10, 20, 30, 40}));
    log.append(record(50, 2));
  }
  EXPECT_EQ(steps_of(dir / "m.jsonl"), (std::vector<std::int64_t>{10, 20, 30, 40, 50}));
  EXPECT_EQ(files_in(dir.path()), 1u) << "a temporary file was left";
}

TEST(JsonLines, NothingIsRewrittenWhenThereIsNothingToDrop) {
  const TempDir dir;
  write_file(dir / "m.jsonl", "{\"step\": 5,   \"note\": \"as I wrote it\"}\n");
  const auto inode = [&] {
    struct stat info {};
    EXPECT_EQ(::stat((dir / "m.jsonl").c_str(), &info), 0);
    return info.st_ino;
  };
  const auto before = inode();
  JsonLines log(dir / "m.jsonl", 5);
  EXPECT_EQ(inode(), before);
}

TEST(JsonLines, ATornLastLineDoesNotSpoilTheNextRecord) {
  const TempDir dir;
  for (const std::string torn : {"{\"step\":2,\"lo", "{\"step\":2}", "\xff\xfe", "[1]", "{\"step\":\"2\"}"}) {
    write_file(dir / "m.jsonl", "{\"step\":1}\n" + torn);
    {
      JsonLines log(dir / "m.jsonl", 2);
      log.append(record(3, 1));
    }
    const bool complete = torn == "{\"step\":2}";
    EXPECT_EQ(read_file(dir / "m.jsonl"),
              std::string("{\"step\":1}\n") + (complete ? "{\"step\":2}\n" : "") + "{\"step\":3,\"loss\":1.0}\n");
  }
}

TEST(JsonLines, DamageInTheMiddleIsDroppedToo) {
  const TempDir dir;
  write_file(dir / "m.jsonl", std::string("{\"step\":1}\n\n\0\0\0\n{\"step\":2}\n{\"step\":1e3}\n", 37));
  JsonLines log(dir / "m.jsonl", 10);
  EXPECT_EQ(read_file(dir / "m.jsonl"), "{\"step\":1}\n{\"step\":2}\n");
}

TEST(JsonLines, ANewRunKeepsTheOldLogUnderAnotherName) {
  const TempDir dir;
  write_file(dir / "m.jsonl", "first\n");
  { JsonLines log(dir / "m.jsonl", std::nullopt); }
  write_file(dir / "m.jsonl", "second\n");
  JsonLines log(dir / "m.jsonl", std::nullopt);
  EXPECT_EQ(read_file(dir / "m.jsonl"), "");
  EXPECT_EQ(read_file(dir / "m.jsonl.1"), "first\n");
  EXPECT_EQ(read_file(dir / "m.jsonl.2"), "second\n");
}

TEST(JsonLines, ALargeLogIsTruncatedQuickly) {
  const TempDir dir;
  std::string text;
  for (int step = 1; step <= 20000; ++step) text += "{\"step\":" + std::to_string(step) + ",\"loss\":1.5}\n";
  write_file(dir / "m.jsonl", text);
  JsonLines log(dir / "m.jsonl", 12345);
  const auto steps = steps_of(log.path());
  ASSERT_EQ(steps.size(), 12345u);
  EXPECT_EQ(steps.back(), 12345);
}

TEST(JsonLines, AFolderInThePlaceOfTheFileIsAnError) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "m.jsonl");
  EXPECT_THROW(JsonLines(dir / "m.jsonl", std::nullopt), Error);
  EXPECT_THROW(JsonLines(dir / "m.jsonl", 3), Error);
  EXPECT_THROW(read_json_lines(dir / "absent", [](const Json&, std::int64_t) {}), Error);
}

TEST(JsonLines, ReadingCountsWhatIsNoRecord) {
  const TempDir dir;
  write_file(dir / "m.jsonl", "{\"step\":1}\nnonsense\n\n{\"step\":2}\n{\"loss\":2}\n{\"st");
  std::vector<std::int64_t> steps;
  EXPECT_EQ(read_json_lines(dir / "m.jsonl", [&](const Json&, std::int64_t step) { steps.push_back(step); }), 3u);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2}));
}

TEST(AppendFile, AFailedAppendLeavesNoHalfRecord) {
  const TempDir dir;
  const auto path = dir / "log";
  struct rlimit saved {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &saved), 0);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  AppendFile file(path);
  file.append("0123456789");
  const struct rlimit small { 15, saved.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(file.append("abcdefghij"), Error);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &saved), 0);
  std::signal(SIGXFSZ, previous);
  EXPECT_EQ(read_file(path), "0123456789");
  file.append("after");
  file.close();
  EXPECT_EQ(read_file(path), "0123456789after");
  EXPECT_THROW(file.append("x"), Error);
}

TEST(AppendFile, AFullDeviceIsNoSpace) {
  AppendFile file("/dev/full");
  try {
    file.append("x");
    FAIL() << "wrote to a full device";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::no_space);
    EXPECT_NE(std::string(error.what()).find("/dev/full"), std::string::npos);
  }
}

TEST(JsonLinesSink, WritesEveryKeyOfEveryRecordAsStrictJson) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const TempDir dir;
  StepMetrics good;
  good.step = 10;
  good.total_steps = 100;
  good.loss = 3.25;
  good.tflops = 1.5;
  good.mfu = 0.5;
  good.float8_share = 0.625;
  good.sol_fraction = 0.375;
  good.memory_bytes = 512;
  good.memory_reserved_bytes = 768;
  good.memory_capacity_bytes = 1024;
  good.step_seconds = 0.25;
  good.eta_seconds = 22.5;
  good.unix_time = 1700000000.25;
  StepMetrics bad = good;
  bad.step = 20;
  bad.loss = kNan;
  bad.grad_norm = std::numeric_limits<double>::infinity();
  bad.tflops.reset();
  bad.sol_fraction.reset();
  bad.memory_capacity_bytes = 0;
  {
    JsonLinesSink sink(dir.path(), std::nullopt);
    sink.step(good);
    sink.step(bad);
    sink.evaluation({.step = 20, .name = "validation", .values = {{"loss", kNan}}, .tokens = 7});
    sink.sample({.step = 20, .prompt = "a \"quote\"\n", .text = "bad \xff byte and \x01", .tokens = {5, 7}});
    sink.finish();
  }
  std::vector<Json> steps;
  EXPECT_EQ(read_json_lines(dir / run_files::kMetrics, [&](const Json& r, std::int64_t) { steps.push_back(r); }), 0u);
  ASSERT_EQ(steps.size(), 2u);
  std::vector<std::string> first_keys, second_keys;
  for (const auto& [key, value] : steps[0].as_object()) first_keys.push_back(key);
  for (const auto& [key, value] : steps[1].as_object()) second_keys.push_back(key);
  EXPECT_EQ(first_keys, second_keys);
  EXPECT_EQ(first_keys, (std::vector<std::string>{"step",
                                                  "total_steps",
                                                  "time",
                                                  "loss",
                                                  "grad_norm",
                                                  "lr",
                                                  "tokens_per_second",
                                                  "devices",
                                                  "tflops",
                                                  "mfu",
                                                  "float8_share",
                                                  "sol_fraction",
                                                  "light_share",
                                                  "memory_bytes",
                                                  "memory_share",
                                                  "memory_reserved_bytes",
                                                  "step_ms",
                                                  "data_share",
                                                  "eta_seconds",
                                                  "tokens_seen",
                                                  "skipped_steps",
                                                  "nonfinite"}));
  EXPECT_EQ(steps[0].at("float8_share").as_double(), 0.625);
  for (const char* name : {"sol_fraction", "light_share"}) {
    EXPECT_EQ(steps[0].at(name).as_double(), 0.375) << name;
    EXPECT_TRUE(steps[1].at(name).is_null()) << name;
  }
  EXPECT_EQ(steps[0].at("loss").as_double(), 3.25);
  EXPECT_EQ(steps[0].at("memory_share").as_double(), 0.5);
  EXPECT_EQ(steps[0].at("memory_reserved_bytes").as_int(), 768);
  EXPECT_EQ(steps[0].at("step_ms").as_double(), 250.0);
  EXPECT_FALSE(steps[0].at("nonfinite").as_bool());
  EXPECT_TRUE(steps[1].at("loss").is_null());
  EXPECT_TRUE(steps[1].at("grad_norm").is_null());
  EXPECT_TRUE(steps[1].at("tflops").is_null());
  EXPECT_TRUE(steps[1].at("memory_share").is_null());
  EXPECT_TRUE(steps[1].at("nonfinite").as_bool());

  const Json evaluation = Json::parse(read_file(dir / run_files::kEvaluations));
  EXPECT_TRUE(evaluation.at("values").at("loss").is_null());
  EXPECT_TRUE(evaluation.at("nonfinite").as_bool());
  const Json sample = Json::parse(read_file(dir / run_files::kSamples));
  EXPECT_EQ(sample.at("prompt").as_string(), "a \"quote\"\n");
  EXPECT_EQ(sample.at("tokens").dump(), "[5,7]");
}

TEST(JsonLinesSink, HealthIsByLayerAndOperand) {
  const HealthMetrics metrics = example_health();
  const Json record = to_json(metrics);
  std::vector<std::string> keys;
  for (const auto& [key, value] : record.as_object()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"step", "time", "worst_sqnr_db", "most_saturated", "most_underflow",
                                            "nonfinite", "layers"}));
  EXPECT_EQ(record.at("step").as_int(), 7);
  EXPECT_DOUBLE_EQ(record.at("worst_sqnr_db").as_double(), 20.0);
  EXPECT_DOUBLE_EQ(record.at("most_saturated").as_double(), 0.05);
  EXPECT_DOUBLE_EQ(record.at("most_underflow").as_double(), 0.25);
  EXPECT_FALSE(record.at("nonfinite").as_bool());
  const Json& layers = record.at("layers");
  ASSERT_EQ(layers.as_object().size(), 2u);
  EXPECT_EQ(layers.at("first").dump(),
            "{\"input\":{\"format\":\"e4m3\",\"amax\":3.5,\"sqnr_db\":30.0,\"saturated\":0.0,\"underflow\":0.0,"
            "\"nonfinite\":false},\"output_gradient\":{\"format\":\"e5m2\",\"amax\":0.5,\"sqnr_db\":20.0,"
            "\"saturated\":0.05,\"underflow\":0.25,\"nonfinite\":false}}");
  // Nothing was lost: no ratio.
  EXPECT_TRUE(Json::parse(layers.at("second").dump()).at("weight").at("sqnr_db").is_null());

  HealthMetrics bad = metrics;
  bad.operands[1].error.most = std::numeric_limits<double>::infinity();
  const Json again = Json::parse(to_json(bad).dump());
  EXPECT_TRUE(again.at("nonfinite").as_bool());
  EXPECT_TRUE(again.at("worst_sqnr_db").is_null());
  EXPECT_TRUE(again.at("layers").at("first").at("output_gradient").at("nonfinite").as_bool());
  EXPECT_TRUE(again.at("layers").at("first").at("output_gradient").at("amax").is_null());
  EXPECT_FALSE(again.at("layers").at("first").at("input").at("nonfinite").as_bool());
}

}  // namespace
}  // namespace quench
