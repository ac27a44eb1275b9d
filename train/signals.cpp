#include "train/signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

#include "core/check.h"
#include "core/file.h"

namespace quench {
namespace {

std::atomic<bool> installed{false};
std::atomic<int> stop_requested{0};
std::atomic<bool> save_requested{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "signal handlers may touch lock-free atomics only");

void on_stop(int signal) {
  int none = 0;
  if (!stop_requested.compare_exchange_strong(none, signal)) ::_exit(exit_status_of_signal(signal));
}

void on_save(int) {
  save_requested.store(true);
}

}  // namespace

SignalHandlers::SignalHandlers() {
  QUENCH_CHECK(!installed.exchange(true), "signal handlers are installed already; one SignalHandlers object at a time");
  stop_requested.store(0);
  save_requested.store(false);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action {};
    // Reads and writes in progress go on after the handler; nothing outside the trainer needs to know about EINTR.
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    switch (kSignals[i]) {
      case SIGPIPE: action.sa_handler = SIG_IGN; break;
      case SIGUSR1: action.sa_handler = on_save; break;
      default: action.sa_handler = on_stop; break;
    }
    QUENCH_CHECK_AS(ErrorCode::failed, ::sigaction(kSignals[i], &action, &previous_[i]) == 0,
                    "cannot handle signal {}: {}", kSignals[i], errno_text(errno));
  }
}

SignalHandlers::~SignalHandlers() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &previous_[i], nullptr);
  installed.store(false);
}

int SignalHandlers::stop_signal() const noexcept {
  return stop_requested.load();
}

bool SignalHandlers::take_save_request() noexcept {
  return save_requested.exchange(false);
}

}  // namespace quench
