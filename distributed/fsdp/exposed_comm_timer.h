#pragma once
// Exposed communication: time in which compute waits for a collective.

#include <utility>
#include <vector>

#include "distributed/process_group.h"

namespace quench::distributed {

// On the CPU the time in which the calling thread waited; on a GPU the time in which the current stream did.
class ExposedCommTimer {
 public:
  explicit ExposedCommTimer(Device device) : device_(device) {}
  ~ExposedCommTimer();
  ExposedCommTimer(const ExposedCommTimer&) = delete;
  ExposedCommTimer& operator=(const ExposedCommTimer&) = delete;

  // Waits for all of them, and forgets them.
  void wait(std::vector<Work>& works);
  // Of the waits since the last call; those that the device has not reached yet count next time.
  [[nodiscard]] double take_seconds();

 private:
  struct Span {
    Event begin, end;
  };

  Device device_;
  double seconds_ = 0;
  std::vector<Span> open_;  // waits whose time is not known yet, in order
  std::vector<Span> free_;
};

}  // namespace quench::distributed
