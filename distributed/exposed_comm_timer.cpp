#include "distributed/exposed_comm_timer.h"

#include <chrono>

namespace quench::distributed {

ExposedCommTimer::~ExposedCommTimer() {
  Backend& owner = backend(device_.type);
  for (const auto* spans : {&open_, &free_})
    for (const Span& span : *spans) {
      owner.destroy_event(span.begin);
      owner.destroy_event(span.end);
    }
}

void ExposedCommTimer::wait(std::vector<Work>& works) {
  if (works.empty()) return;
  if (device_.type != DeviceType::cuda) {
    const auto start = std::chrono::steady_clock::now();
    for (Work& work : works) work.wait();
    works.clear();
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return;
  }
  Backend& owner = backend(device_.type);
  const Span span = take_span();
  const Stream stream = current_stream(device_);
  owner.record(span.begin, stream);
  for (Work& work : works) work.wait();
  works.clear();
  owner.record(span.end, stream);
  open_.push_back(span);
}

void ExposedCommTimer::wait(Event event) {
  Backend& owner = backend(device_.type);
  const Span span = take_span();
  const Stream stream = current_stream(device_);
  owner.record(span.begin, stream);
  owner.wait(stream, event);
  owner.record(span.end, stream);
  open_.push_back(span);
}

ExposedCommTimer::Span ExposedCommTimer::take_span() {
  Backend& owner = backend(device_.type);
  if (free_.empty()) return {owner.create_timing_event(device_), owner.create_timing_event(device_)};
  const Span span = free_.back();
  free_.pop_back();
  return span;
}

double ExposedCommTimer::take_seconds() {
  Backend& owner = backend(device_.type);
  std::size_t known = 0;
  for (; known < open_.size() && owner.is_done(open_[known].end); ++known) {
    seconds_ += owner.elapsed_milliseconds(open_[known].begin, open_[known].end) / 1e3;
    free_.push_back(open_[known]);
  }
  open_.erase(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(known));
  return std::exchange(seconds_, 0.0);
}

}  // namespace quench::distributed
