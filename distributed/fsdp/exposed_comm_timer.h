#pragma once
// Exposed communication: time during which compute waits for collectives.

#include <utility>
#include <vector>

#include "distributed/process_group.h"

namespace quench::distributed {

// CPU: wait time of the calling thread. GPU: wait time of the current stream.
class ExposedCommTimer {
 public:
  explicit ExposedCommTimer(Device device) : device_(device) {}
  ~ExposedCommTimer();
  ExposedCommTimer(const ExposedCommTimer&) = delete;
  ExposedCommTimer& operator=(const ExposedCommTimer&) = delete;

  // Waits for all works and clears the vector.
  void wait(std::vector<Work>& works);
  // Seconds since the last call. Waits not yet complete on the device count in a later call.
  [[nodiscard]] double take_seconds();

 private:
  struct Span {
    Event begin, end;
  };

  Device device_;
  double seconds_ = 0;
  std::vector<Span> open_;  // waits not yet measured, in order
  std::vector<Span> free_;
};

}  // namespace quench::distributed
