#pragma once
// TensorBoard event files: TFRecord framing around protobuf `Event` messages, encoded here by hand.
//
// Record: u64 length, u32 masked CRC-32C of the length's bytes, payload, u32 masked CRC-32C of the payload; all
// little-endian (tensorflow/core/lib/io/record_writer.h). The first payload carries file_version "brain.Event:2"
// (tensorflow/core/util/event.proto, framework/summary.proto). Every call appends whole records with one write, so a
// file cut short by a crash is readable up to its last complete record.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "train/metrics/append_file.h"

namespace quench {

struct ScalarSummary {
  std::string_view tag;
  double value = 0;  // stored as float; NaN and infinities are allowed
};

// "events.out.tfevents.<unix time>.<host>.<process id>.<n>": TensorBoard recognises "tfevents"; the rest makes the name
// unique.
[[nodiscard]] std::string event_file_name(double unix_time);

class EventFile {
 public:
  // Creates `path` and writes the version record.
  EventFile(const std::filesystem::path& path, double unix_time);

  // All scalars of one step in one record.
  void scalars(std::int64_t step, double unix_time, std::span<const ScalarSummary> values);
  // A text for TensorBoard's text panel, which renders Markdown.
  void text(std::int64_t step, double unix_time, std::string_view tag, std::string_view markdown);
  // Tells TensorBoard to drop what earlier files of the folder hold for this step and later ones.
  void restart(std::int64_t step, double unix_time);
  void close() { file_.close(); }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace quench
