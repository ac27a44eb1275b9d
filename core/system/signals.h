#pragma once
// Signals of a training run.
//
//   SIGTERM, SIGINT,  stop: the trainer finishes the step and saves; exit status 143, 130 or 129
//   SIGHUP
//   any of them again, at least kSecondStopSeconds later
//                     exits at once with 128 + signal number, without saving
//   SIGUSR1           checkpoint; training continues
//   SIGPIPE           ignored: writes to a closed terminal or `| head` fail instead
//
// Handlers set lock-free flags (async-signal-safe) that the trainer reads between steps. With several ranks, reduce
// stop_signal() (maximum) over ranks first, so that all save the same step.

#include <signal.h>

#include <array>
#include <functional>

namespace quench {

// Signals within this time of the first are one request: timeout(1) and terminals signal process and group, batch
// systems repeat SIGTERM.
inline constexpr int kSecondStopSeconds = 1;

class SignalHandlers {
 public:
  // Installs handlers and clears flags. Throws Error(invalid_argument) for a second object. Inherited "ignore"
  // dispositions are replaced (background jobs must stop), except SIGHUP for nohup(1).
  SignalHandlers();
  // Restores previous dispositions.
  ~SignalHandlers();
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

  // First SIGTERM, SIGINT or SIGHUP since construction, or 0.
  [[nodiscard]] int stop_signal() const noexcept;
  // True if SIGUSR1 arrived since the last call.
  [[nodiscard]] bool take_save_request() noexcept;

 private:
  static constexpr std::array<int, 5> kSignals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE};
  std::array<struct sigaction, kSignals.size()> previous_{};
};

// Handlers that live as long as the returned function, which gives the first stop signal or 0; for interruptible work
// before the first step.
[[nodiscard]] std::function<int()> poll_stop_signals();

// 143 for SIGTERM, 130 for SIGINT, 129 for SIGHUP.
[[nodiscard]] constexpr int exit_status_of_signal(int signal) noexcept {
  return 128 + signal;
}

}  // namespace quench
