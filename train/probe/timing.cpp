#include "train/probe/timing.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace quench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Time stamps on a device's current stream.
class Marks {
 public:
  explicit Marks(Device device) : backend_(backend(device.type)), stream_(current_stream(device)) {}
  ~Marks() {
    for (const Event event : events_) backend_.destroy_event(event);
  }
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  void add() {
    if (stream_.device.is_cpu()) {
      times_.push_back(Clock::now());
      return;
    }
    events_.push_back(backend_.create_timing_event(stream_.device));
    backend_.record(events_.back(), stream_);
  }

  // Milliseconds between consecutive marks. Synchronizes.
  [[nodiscard]] std::vector<double> intervals() {
    std::vector<double> result;
    for (std::size_t i = 1; i < times_.size(); ++i)
      result.push_back(std::chrono::duration<double, std::milli>(times_[i] - times_[i - 1]).count());
    if (!events_.empty()) backend_.synchronize(events_.back());
    for (std::size_t i = 1; i < events_.size(); ++i)
      result.push_back(backend_.elapsed_milliseconds(events_[i - 1], events_[i]));
    return result;
  }

 private:
  Backend& backend_;
  Stream stream_;
  std::vector<Event> events_;
  std::vector<Clock::time_point> times_;
};

}  // namespace

double median_milliseconds(Device device, const TimingOptions& options, const std::function<void()>& body) {
  Backend& back = backend(device.type);
  const Stream stream = current_stream(device);
  const Clock::time_point start = Clock::now();
  double last = 0;  // seconds of the last repetition
  for (int i = 0; i < std::max(options.warm_up, 1); ++i) {
    const Clock::time_point before = Clock::now();
    body();
    back.synchronize(stream);
    last = seconds_since(before);
    // The first call initializes caches.
    if (i > 0 && seconds_since(start) > options.warm_up_seconds) break;
  }
  const double fitting = options.seconds / std::max(last, 1e-6);
  const int repetitions =
      static_cast<int>(std::clamp(fitting, 3.0, static_cast<double>(std::max(options.repetitions, 3))));
  Marks marks(device);
  marks.add();
  for (int i = 0; i < repetitions; ++i) {
    body();
    marks.add();
  }
  std::vector<double> times = marks.intervals();
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace quench
