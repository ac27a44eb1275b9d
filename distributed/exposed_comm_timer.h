#pragma once
// Exposed communication: time in which compute waits for collectives. CPU: of the calling thread; GPU: of the current
// stream.

#include <utility>
#include <vector>

#include "distributed/process_group.h"

namespace quench::distributed {

class ExposedCommTimer {
 public:
  explicit ExposedCommTimer(Device device) : device_(device) {}
  ~ExposedCommTimer();
  ExposedCommTimer(const ExposedCommTimer&) = delete;
  ExposedCommTimer& operator=(const ExposedCommTimer&) = delete;

  // Clears the vector.
  void wait(std::vector<Work>& works);
  // CUDA event; the current stream waits.
  void wait(Event event);
  // Since the last call. Waits incomplete on the device count in a later call.
  [[nodiscard]] double take_seconds();

 private:
  struct Span {
    Event begin, end;
  };
  [[nodiscard]] Span take_span();

  Device device_;
  double seconds_ = 0;
  std::vector<Span> open_;  // not yet measured, in order
  std::vector<Span> free_;
};

}  // namespace quench::distributed
