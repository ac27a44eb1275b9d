#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "core/system/check.h"
#include "tests/testing.h"
#include "tests/train/health/example_health.h"
#include "train/metrics/crc32c.h"
#include "train/metrics/event_file.h"
#include "train/metrics/tensorboard_sink.h"

namespace quench {
namespace {

// A reader of event files that shares nothing with the writer: bitwise CRC, protobuf wire format by hand.
std::uint32_t bitwise_crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = (crc & 1u) != 0 ? (crc >> 1) ^ 0x82F63B78u : crc >> 1;
  }
  return ~crc;
}

template <class T>
T read_le(std::string_view bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

std::uint32_t unmask(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xA282EAD8u;
  return rotated << 15 | rotated >> 17;
}

// The payloads of all complete records; a CRC that does not match is a test failure.
std::vector<std::string> records(std::string_view file) {
  std::vector<std::string> result;
  while (file.size() >= 12) {
    const auto length = read_le<std::uint64_t>(file);
    EXPECT_EQ(unmask(read_le<std::uint32_t>(file.substr(8))), bitwise_crc32c(file.substr(0, 8)));
    if (file.size() - 12 < length + 4) break;
    const std::string_view payload = file.substr(12, length);
    EXPECT_EQ(unmask(read_le<std::uint32_t>(file.substr(12 + length))), bitwise_crc32c(payload));
    result.emplace_back(payload);
    file.remove_prefix(16 + length);
  }
  return result;
}

struct Field {
  std::uint64_t number = 0;  // varint, or the bits of a fixed field
  std::string bytes;
};

std::multimap<int, Field> fields(std::string_view message) {
  std::multimap<int, Field> result;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      if (message.empty() || shift > 63) throw std::runtime_error("bad varint");
      const auto byte = static_cast<unsigned char>(message[0]);
      message.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (!message.empty()) {
    const std::uint64_t key = varint();
    Field field;
    switch (key & 7) {
      case 0: field.number = varint(); break;
      case 1: field.number = read_le<std::uint64_t>(message), message.remove_prefix(8); break;
      case 5: field.number = read_le<std::uint32_t>(message), message.remove_prefix(4); break;
      case 2: {
        const std::uint64_t size = varint();
        field.bytes = std::string(message.substr(0, size));
        message.remove_prefix(size);
        break;
      }
      default: throw std::runtime_error("bad wire type");
    }
    result.emplace(static_cast<int>(key >> 3), field);
  }
  return result;
}

const Field& only(const std::multimap<int, Field>& message, int number) {
  if (message.count(number) != 1) throw std::runtime_error("field " + std::to_string(number) + " is not there once");
  return message.find(number)->second;
}

std::map<std::string, float> scalars_of(const std::string& payload) {
  std::map<std::string, float> result;
  const auto event = fields(payload);
  const auto summary = fields(only(event, 5).bytes);
  for (auto [at, end] = summary.equal_range(1); at != end; ++at) {
    const auto value = fields(at->second.bytes);
    result[only(value, 1).bytes] = std::bit_cast<float>(static_cast<std::uint32_t>(only(value, 2).number));
  }
  return result;
}

std::filesystem::path only_file(const std::filesystem::path& folder) {
  std::filesystem::directory_iterator entries(folder);
  return entries->path();
}

TEST(Crc32c, HasItsCheckValues) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(""), 0u);
  // RFC 3720, appendix B.4: 32 bytes of zeros, of ones, and ascending.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  EXPECT_EQ(crc32c(ascending), 0x46DD794Eu);
  EXPECT_EQ(unmask(mask_crc32c(0x12345678u)), 0x12345678u);
}

TEST(EventFile, BeginsWithTheVersionRecord) {
  const testing::TempDir dir;
  EventFile(dir / "events", 1700000000.5).close();
  const auto all = records(testing::read_file(dir / "events"));
  ASSERT_EQ(all.size(), 1u);
  const auto event = fields(all[0]);
  EXPECT_EQ(std::bit_cast<double>(only(event, 1).number), 1700000000.5);
  EXPECT_EQ(only(event, 3).bytes, "brain.Event:2");
}

TEST(EventFile, KeepsScalarsStepsAndTimes) {
  const testing::TempDir dir;
  {
    EventFile file(dir / "events", 1.0);
    const std::vector<ScalarSummary> values = {{"loss", 3.25}, {"grad_norm", std::nan("")}};
    file.scalars(300, 2.5, values);
    file.scalars(std::int64_t{1} << 40, 3.0, {});
    file.restart(17, 4.0);
  }
  const auto all = records(testing::read_file(dir / "events"));
  ASSERT_EQ(all.size(), 4u);
  const auto event = fields(all[1]);
  EXPECT_EQ(only(event, 2).number, 300u);
  EXPECT_EQ(std::bit_cast<double>(only(event, 1).number), 2.5);
  const auto values = scalars_of(all[1]);
  EXPECT_EQ(values.at("loss"), 3.25f);
  EXPECT_TRUE(std::isnan(values.at("grad_norm")));
  EXPECT_EQ(only(fields(all[2]), 2).number, std::uint64_t{1} << 40);
  const auto restart = fields(all[3]);
  EXPECT_EQ(only(restart, 2).number, 17u);
  EXPECT_EQ(only(fields(only(restart, 7).bytes), 1).number, 1u);
}

TEST(EventFile, TextIsAStringTensorOfTheTextPlugin) {
  const testing::TempDir dir;
  const std::string text(300, 'x');
  {
    EventFile file(dir / "events", 1.0);
    file.text(5, 2.0, "config", text);
  }
  const auto all = records(testing::read_file(dir / "events"));
  const auto value = fields(only(fields(only(fields(all.at(1)), 5).bytes), 1).bytes);
  EXPECT_EQ(only(value, 1).bytes, "config");
  EXPECT_EQ(only(fields(only(fields(only(value, 9).bytes), 1).bytes), 1).bytes, "text");
  const auto tensor = fields(only(value, 8).bytes);
  EXPECT_EQ(only(tensor, 1).number, 7u);
  EXPECT_EQ(only(tensor, 8).bytes, text);
}

TEST(EventFile, AFileCutAnywhereIsReadableUpToItsLastCompleteRecord) {
  const testing::TempDir dir;
  {
    EventFile file(dir / "events", 1.0);
    const std::vector<ScalarSummary> values = {{"loss", 1.0}};
    for (int step = 1; step <= 3; ++step) file.scalars(step, 1.0, values);
  }
  const std::string whole = testing::read_file(dir / "events");
  std::size_t previous = 0;
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    const std::size_t count = records(std::string_view(whole).substr(0, size)).size();
    EXPECT_GE(count, previous);
    previous = count;
  }
  EXPECT_EQ(previous, 4u);
}

TEST(EventFile, NamesAreRecognisableAndDiffer) {
  const std::string a = event_file_name(1700000000.9), b = event_file_name(1700000000.9);
  EXPECT_EQ(a.rfind("events.out.tfevents.1700000000.", 0), 0u);
  EXPECT_EQ(a.find('/'), std::string::npos);
  EXPECT_NE(a, b);
}

TEST(TensorBoardSink, UsesTorchtitansTags) {
  const testing::TempDir dir;
  StepMetrics metrics;
  metrics.step = 10;
  metrics.loss = 2.5;
  metrics.grad_norm = 0.5;
  metrics.lr = 1e-3;
  metrics.tokens_per_second = 1000;
  metrics.devices = 4;
  metrics.tflops = 12.5;
  metrics.mfu = 0.25;
  metrics.float8_share = 0.75;
  metrics.sol_fraction = 0.125;
  metrics.memory_bytes = std::uint64_t{2} << 30;
  metrics.memory_reserved_bytes = std::uint64_t{3} << 30;
  metrics.memory_capacity_bytes = std::uint64_t{8} << 30;
  metrics.step_seconds = 0.5;
  metrics.data_share = 0.1;
  metrics.tokens_seen = 4096;
  metrics.unix_time = 5;
  {
    TensorBoardSink sink(dir.path(), std::nullopt, 1.0);
    sink.step(metrics);
    sink.evaluation({.step = 10, .name = "validation", .values = {{"loss", 2.25}}});
    sink.evaluation({.step = 10, .name = "hellaswag", .values = {{"acc_norm", 0.3}}});
    sink.finish();
  }
  const auto all = records(testing::read_file(only_file(dir.path())));
  ASSERT_EQ(all.size(), 4u);
  const std::map<std::string, float> expected = {
      {"loss_metrics/global_avg_loss", 2.5f},
      {"grad_norm", 0.5f},
      {"lr", 1e-3f},
      {"throughput(tps)", 250.0f},
      {"tflops", 12.5f},
      {"mfu(%)", 25.0f},
      {"float8_flops(%)", 75.0f},
      {"sol_fraction(%)", 12.5f},
      {"light_share(%)", 12.5f},
      {"time_metrics/end_to_end(s)", 0.5f},
      {"time_metrics/data_loading(s)", 0.05f},
      {"time_metrics/data_loading(%)", 10.0f},
      {"memory/max_active(GiB)", 2.0f},
      {"memory/max_active(%)", 25.0f},
      {"memory/max_reserved(GiB)", 3.0f},
      {"memory/max_reserved(%)", 37.5f},
      {"n_tokens_seen", 4096.0f},
      {"skipped_steps", 0.0f},
  };
  EXPECT_EQ(scalars_of(all[1]), expected);
  EXPECT_EQ(scalars_of(all[2]).at("validation_metrics/loss"), 2.25f);
  EXPECT_EQ(scalars_of(all[3]).at("hellaswag/acc_norm"), 0.3f);
}

TEST(TensorBoardSink, UnknownValuesAreLeftOut) {
  const testing::TempDir dir;
  TensorBoardSink(dir.path(), std::nullopt, 1.0).step({.step = 1});
  const auto values = scalars_of(records(testing::read_file(only_file(dir.path()))).at(1));
  for (const char* tag : {"tflops", "mfu(%)", "sol_fraction(%)", "light_share(%)", "memory/max_active(GiB)",
                          "memory/max_active(%)", "memory/max_reserved(GiB)", "memory/max_reserved(%)"})
    EXPECT_EQ(values.count(tag), 0u) << tag;
}

TEST(TensorBoardSink, HealthHasATagForEveryNumber) {
  const testing::TempDir dir;
  TensorBoardSink sink(dir.path(), std::nullopt, 1.0);
  sink.health(testing::example_health());
  const std::map<std::string, float> expected = {
      {"health/worst_sqnr(dB)", 20.0f},
      {"health/most_saturated(%)", 5.0f},
      {"health/most_underflow(%)", 25.0f},
      {"health/first/input/amax", 3.5f},
      {"health/first/input/sqnr(dB)", 30.0f},
      {"health/first/input/saturated(%)", 0.0f},
      {"health/first/input/underflow(%)", 0.0f},
      {"health/first/output_gradient/amax", 0.5f},
      {"health/first/output_gradient/sqnr(dB)", 20.0f},
      {"health/first/output_gradient/saturated(%)", 5.0f},
      {"health/first/output_gradient/underflow(%)", 25.0f},
      {"health/second/weight/amax", 2.0f},
      {"health/second/weight/saturated(%)", 0.0f},
      {"health/second/weight/underflow(%)", 0.0f},
  };
  const auto all = records(testing::read_file(only_file(dir.path())));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(only(fields(all[1]), 2).number, 7u);
  EXPECT_EQ(scalars_of(all[1]), expected);
}

TEST(TensorBoardSink, ARollbackPurgesToo) {
  const testing::TempDir dir;
  TensorBoardSink sink(dir.path(), std::nullopt, 1.0);
  sink.step({.step = 7});
  sink.rewind(4);
  const auto event = fields(records(testing::read_file(only_file(dir.path()))).at(2));
  EXPECT_EQ(only(event, 2).number, 5u);
  EXPECT_EQ(only(fields(only(event, 7).bytes), 1).number, 1u);
}

TEST(TensorBoardSink, AResumedRunPurgesWhatItWillWriteAgain) {
  const testing::TempDir dir;
  TensorBoardSink(dir.path(), 120, 1.0, "{\n  \"a\": 1\n}").finish();
  const auto all = records(testing::read_file(only_file(dir.path())));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(only(fields(all[1]), 2).number, 121u);
  EXPECT_EQ(only(fields(only(fields(all[1]), 7).bytes), 1).number, 1u);
  const auto value = fields(only(fields(only(fields(all[2]), 5).bytes), 1).bytes);
  EXPECT_EQ(only(fields(only(value, 8).bytes), 8).bytes, "    {\n      \"a\": 1\n    }");
}

}  // namespace
}  // namespace quench
