#pragma once
// What a training run does with signals.
//
//   SIGTERM, SIGINT   ask for a stop: the trainer finishes the step, saves, and the program exits with 143 or 130
//   either, again     ends the process at once with 128 + the signal's number, saving nothing more
//   SIGUSR1           asks for a checkpoint; training goes on
//   SIGPIPE           ignored, so that a closed terminal or `| head` makes a write fail instead of killing the run
//
// The handlers only set lock-free flags (async-signal-safe); the trainer reads them between steps. In a run of several
// ranks a signal may reach one rank only: combine stop_signal() over the ranks (maximum) before acting on it, so that
// all save the same step.

#include <signal.h>

#include <array>

namespace quench {

class SignalHandlers {
 public:
  // Installs the handlers and clears the flags. One object at a time; throws Error(invalid_argument) for a second.
  // A disposition inherited as "ignore" (a background job of a script) is replaced too: a run that is asked to stop
  // stops.
  SignalHandlers();
  // Restores the dispositions found at construction.
  ~SignalHandlers();
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

  // The first SIGTERM or SIGINT since construction; 0 when there was none.
  [[nodiscard]] int stop_signal() const noexcept;
  // Whether a SIGUSR1 arrived since the last call; several count once.
  [[nodiscard]] bool take_save_request() noexcept;

 private:
  static constexpr std::array<int, 4> kSignals = {SIGTERM, SIGINT, SIGUSR1, SIGPIPE};
  std::array<struct sigaction, kSignals.size()> previous_{};
};

// Exit status of a program stopped by a signal: 143 for SIGTERM, 130 for SIGINT.
[[nodiscard]] constexpr int exit_status_of_signal(int signal) noexcept {
  return 128 + signal;
}

}  // namespace quench
