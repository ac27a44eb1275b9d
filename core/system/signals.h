#pragma once
// What a training run does with signals.
//
//   SIGTERM, SIGINT,  ask for a stop: the trainer finishes the step, saves, and the program exits with 143, 130 or 129
//   SIGHUP
//   any of them, again, at least kSecondStopSeconds after the first
//                     ends the process at once with 128 + the signal's number, saving nothing more
//   SIGUSR1           asks for a checkpoint; training goes on
//   SIGPIPE           ignored, so that a closed terminal or `| head` makes a write fail instead of killing the run
//
// The handlers only set lock-free flags (async-signal-safe); the trainer reads them between steps. In a run of several
// ranks a signal may reach one rank only: combine stop_signal() over the ranks (maximum) before acting on it, so that
// all save the same step.

#include <signal.h>

#include <array>
#include <functional>

namespace quench {

// One request to stop may come as several signals: timeout(1) and terminals signal a process and its group, batch
// systems send SIGCONT, SIGTERM and SIGTERM again. Sooner than this after the first they are the same request.
inline constexpr int kSecondStopSeconds = 1;

class SignalHandlers {
 public:
  // Installs the handlers and clears the flags. One object at a time; throws Error(invalid_argument) for a second.
  // A disposition inherited as "ignore" (a background job of a script) is replaced too: a run that is asked to stop
  // stops. But SIGHUP stays ignored where it was: that is what nohup(1) asks for.
  SignalHandlers();
  // Restores the dispositions found at construction.
  ~SignalHandlers();
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

  // The first SIGTERM, SIGINT or SIGHUP since construction; 0 when there was none.
  [[nodiscard]] int stop_signal() const noexcept;
  // Whether a SIGUSR1 arrived since the last call; several count once.
  [[nodiscard]] bool take_save_request() noexcept;

 private:
  static constexpr std::array<int, 5> kSignals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE};
  std::array<struct sigaction, kSignals.size()> previous_{};
};

// Installs handlers that live as long as the function, which gives the first SIGTERM, SIGINT or SIGHUP, or 0: for work
// before the first step that can be left between its pieces.
[[nodiscard]] std::function<int()> poll_stop_signals();

// Exit status of a program stopped by a signal: 143 for SIGTERM, 130 for SIGINT, 129 for SIGHUP.
[[nodiscard]] constexpr int exit_status_of_signal(int signal) noexcept {
  return 128 + signal;
}

}  // namespace quench
