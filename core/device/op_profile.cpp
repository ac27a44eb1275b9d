#include "core/device/op_profile.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

namespace quench {
namespace {

struct Recording {
  Device device;
  struct Entry {
    std::string label;
    Event begin, end;
    std::chrono::steady_clock::time_point host_begin{}, host_end{};
  };
  std::vector<Entry> entries;
  int depth = 0;  // nested ops count for the outermost
};

thread_local std::unique_ptr<Recording> recording;

}  // namespace

thread_local constinit bool OpProfile::active_ = false;

void OpProfile::start(Device device) {
  recording = std::make_unique<Recording>();
  recording->device = device;
  active_ = true;
}

std::vector<OpTime> OpProfile::stop() {
  active_ = false;
  if (!recording) return {};
  const auto done = std::move(recording);
  Backend& b = backend(done->device.type);
  b.synchronize(current_stream(done->device));
  std::map<std::string, OpTime> sums;
  for (const auto& [label, begin, end, host_begin, host_end] : done->entries) {
    OpTime& sum = sums[label];
    sum.label = label;
    ++sum.calls;
    sum.milliseconds += done->device.is_cpu() ? std::chrono::duration<double, std::milli>(host_end - host_begin).count()
                                              : b.elapsed_milliseconds(begin, end);
    b.destroy_event(begin);
    b.destroy_event(end);
  }
  std::vector<OpTime> times;
  for (auto& [label, time] : sums) times.push_back(std::move(time));
  std::ranges::sort(times, [](const OpTime& a, const OpTime& b2) { return a.milliseconds > b2.milliseconds; });
  return times;
}

OpProfile::Call::Call(std::string label) {
  if (!recording) return;
  if (recording->depth == 0) {
    Backend& b = backend(recording->device.type);
    const Event begin = b.create_timing_event(recording->device), end = b.create_timing_event(recording->device);
    b.record(begin, current_stream(recording->device));
    recording->entries.push_back({std::move(label), begin, end, std::chrono::steady_clock::now()});
  }
  ++recording->depth;  // after everything that may throw
}

OpProfile::Call::~Call() {
  if (!recording || --recording->depth > 0) return;
  recording->entries.back().host_end = std::chrono::steady_clock::now();
  try {
    backend(recording->device.type).record(recording->entries.back().end, current_stream(recording->device));
  } catch (const Error&) {
    // Device lost; stop() throws.
  }
}

std::string profile_table(const std::vector<OpTime>& times, double wall_ms) {
  double total = 0;
  for (const OpTime& time : times) total += time.milliseconds;
  std::string table = fmt::format("{:<58}{:>7}{:>11}{:>8}\n", "op", "calls", "ms", "share");
  for (const OpTime& time : times)
    table += fmt::format("{:<58}{:>7}{:>11.3f}{:>7.1f}%\n", time.label, time.calls, time.milliseconds,
                         100 * time.milliseconds / wall_ms);
  table += fmt::format("{:<58}{:>7}{:>11.3f}{:>7.1f}%\n", "between ops", "", wall_ms - total,
                       100 * (wall_ms - total) / wall_ms);
  return table;
}

}  // namespace quench
