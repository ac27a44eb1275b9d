#pragma once
// Signals of a training run.
//
//   SIGTERM, SIGINT,  stop: the trainer finishes the step and saves; exit status 143, 130 or 129
//   SIGHUP
//   any of them again, at least kSecondStopSeconds later
//                     exits with 128 + signal number, without saving
//   SIGUSR1           checkpoint
//   SIGPIPE           ignored: writes to a closed terminal or `| head` fail
//
// Handlers set lock-free flags, read between steps. Several ranks: reduce stop_signal() (maximum) first, so that all
// save the same step.

#include <signal.h>

#include <array>
#include <functional>
#include <string>

namespace quench {

// One request until then: timeout(1) and terminals signal process and group, batch systems repeat SIGTERM.
inline constexpr int kSecondStopSeconds = 1;

class SignalHandlers {
 public:
  // Throws Error(invalid_argument) for a second object. Inherited "ignore" is replaced (background jobs must stop),
  // except SIGHUP for nohup(1).
  SignalHandlers();
  ~SignalHandlers();
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

  // Since construction; 0: none.
  [[nodiscard]] int stop_signal() const noexcept;
  // SIGUSR1 since the last call.
  [[nodiscard]] bool take_save_request() noexcept;

 private:
  static constexpr std::array<int, 5> kSignals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE};
  std::array<struct sigaction, kSignals.size()> previous_{};
};

// Handlers as long as the returned function (first stop signal or 0) lives; for interruptible work before the first
// step.
[[nodiscard]] std::function<int()> poll_stop_signals();

// Alternate stack of the calling thread, unless it has one, for handlers with SA_ONSTACK: oneDNN kernels repurpose the
// stack pointer, and a handler's frame on the normal stack would overwrite data. SignalHandlers has one; for programs
// that install handlers of their own. Throws out_of_memory.
void give_handlers_a_stack();

// "Ctrl-C", "SIGTERM", "SIGHUP"; of others "signal 10".
[[nodiscard]] std::string signal_text(int signal);

[[nodiscard]] constexpr int exit_status_of_signal(int signal) noexcept {
  return 128 + signal;
}

}  // namespace quench
