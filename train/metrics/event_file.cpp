#include "train/metrics/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>

#include "train/metrics/crc32c.h"

namespace quench {
namespace {

enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9 };
enum TensorField { kDtype = 1, kShape = 2, kStringValue = 8 };
constexpr std::uint64_t kSessionStart = 1;
constexpr std::uint64_t kDtString = 7;

// Protobuf wire types: 0 varint, 1 64-bit, 2 length-delimited, 5 32-bit.
class Message {
 public:
  Message& varint(int field, std::uint64_t value) {
    key(field, 0);
    raw_varint(value);
    return *this;
  }
  Message& real64(int field, double value) {
    key(field, 1);
    fixed(std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  Message& real32(int field, float value) {
    key(field, 5);
    fixed(std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    key(field, 2);
    raw_varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.bytes_); }

  [[nodiscard]] const std::string& encoded() const { return bytes_; }

 private:
  void key(int field, unsigned wire_type) { raw_varint(static_cast<unsigned>(field) << 3 | wire_type); }
  void raw_varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  void fixed(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  }

  std::string bytes_;
};

template <class Unsigned>
std::string little_endian(Unsigned value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(value); ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string record(const Message& event) {
  const std::string& payload = event.encoded();
  const std::string length = little_endian(static_cast<std::uint64_t>(payload.size()));
  return length + little_endian(mask_crc32c(crc32c(length))) + payload + little_endian(mask_crc32c(crc32c(payload)));
}

Message event(double unix_time, std::int64_t step) {
  Message result;
  result.real64(kWallTime, unix_time);
  if (step != 0) result.varint(kStep, static_cast<std::uint64_t>(step));
  return result;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  std::string text(name.data());
  for (char& c : text)
    if (c == '/') c = '_';
  return text;
}

}  // namespace

std::string event_file_name(double unix_time) {
  static std::atomic<unsigned> counter{0};
  return fmt::format("events.out.tfevents.{}.{}.{}.{}", static_cast<std::int64_t>(unix_time), host_name(), ::getpid(),
                     counter++);
}

EventFile::EventFile(const std::filesystem::path& path, double unix_time) : file_(path) {
  file_.append(record(event(unix_time, 0).bytes(kFileVersion, "brain.Event:2")));
}

void EventFile::scalars(std::int64_t step, double unix_time, std::span<const ScalarSummary> values) {
  Message summary;
  for (const ScalarSummary& scalar : values)
    summary.message(kValue, Message().bytes(kTag, scalar.tag).real32(kSimpleValue, static_cast<float>(scalar.value)));
  file_.append(record(event(unix_time, step).message(kSummary, summary)));
}

void EventFile::text(std::int64_t step, double unix_time, std::string_view tag, std::string_view markdown) {
  // SummaryMetadata{plugin_data = 1: PluginData{plugin_name = 1}}; TensorShapeProto{dim = 2: Dim{size = 1}}.
  const Message metadata = Message().message(1, Message().bytes(1, "text"));
  const Message shape = Message().message(2, Message().varint(1, 1));
  const Message tensor = Message().varint(kDtype, kDtString).message(kShape, shape).bytes(kStringValue, markdown);
  const Message value = Message().bytes(kTag, tag).message(kTensor, tensor).message(kMetadata, metadata);
  file_.append(record(event(unix_time, step).message(kSummary, Message().message(kValue, value))));
}

void EventFile::restart(std::int64_t step, double unix_time) {
  file_.append(record(event(unix_time, step).message(kSessionLog, Message().varint(1, kSessionStart))));
}

}  // namespace quench
