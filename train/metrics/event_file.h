#pragma once
// TensorBoard event files: TFRecords of protobuf `Event` messages, without protobuf.
//
// Record: u64 length, u32 masked CRC-32C of the length bytes, payload, u32 masked CRC-32C of the payload; little-endian
// (tensorflow/core/lib/io/record_writer.h). First payload: file_version "brain.Event:2"
// (tensorflow/core/util/event.proto, framework/summary.proto). Each call appends whole records in one write: a
// truncated file is readable up to its last complete one.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "train/metrics/append_file.h"

namespace quench {

struct ScalarSummary {
  std::string_view tag;
  double value = 0;  // as f32; NaN and infinities allowed
};

// "events.out.tfevents.<unix time>.<host>.<process id>.<n>": unique.
[[nodiscard]] std::string event_file_name(double unix_time);

class EventFile {
 public:
  // Writes the version record.
  EventFile(const std::filesystem::path& path, double unix_time);

  // In one record.
  void scalars(std::int64_t step, double unix_time, std::span<const ScalarSummary> values);
  // Text panel.
  void text(std::int64_t step, double unix_time, std::string_view tag, std::string_view markdown);
  // TensorBoard drops data of earlier files from this step on.
  void restart(std::int64_t step, double unix_time);
  void close() { file_.close(); }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace quench
