#include "core/system/signals.h"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/system/check.h"
#include "core/system/file.h"

namespace quench {
namespace {

std::atomic<bool> installed{false};
std::atomic<int> stop_requested{0};
std::atomic<std::int64_t> stop_requested_at{0};  // monotonic, ns
std::atomic<bool> save_requested{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free &&
                  std::atomic<bool>::is_always_lock_free,
              "signal handlers may touch lock-free atomics only");

constexpr std::size_t kHandlerStack = std::size_t{64} << 10;
constexpr std::int64_t kNanoseconds = 1'000'000'000;

// Async-signal-safe.
std::int64_t monotonic_nanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNanoseconds + now.tv_nsec;
}

void on_stop(int signal) {
  const std::int64_t now = monotonic_nanoseconds();
  std::int64_t never = 0;
  // Time first, for a second signal that interrupts this handler.
  if (stop_requested_at.compare_exchange_strong(never, now)) {
    stop_requested.store(signal);
    return;
  }
  if (now - stop_requested_at.load() >= kSecondStopSeconds * kNanoseconds) ::_exit(exit_status_of_signal(signal));
}

void on_save(int) {
  save_requested.store(true);
}

}  // namespace

void give_handlers_a_stack() {
  stack_t stack{};
  if (::sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_DISABLE) == 0) return;
  stack = {.ss_sp = nullptr, .ss_flags = 0, .ss_size = kHandlerStack + ::getauxval(AT_MINSIGSTKSZ)};
  stack.ss_sp = ::mmap(nullptr, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  QUENCH_CHECK_AS(ErrorCode::out_of_memory, stack.ss_sp != MAP_FAILED, "no memory for the stack of signal handlers");
  QUENCH_CHECK_AS(ErrorCode::failed, ::sigaltstack(&stack, nullptr) == 0, "no stack for signal handlers: {}",
                  errno_text(errno));
}

SignalHandlers::SignalHandlers() {
  QUENCH_CHECK(!installed.exchange(true), "signal handlers are installed already; one SignalHandlers object at a time");
  give_handlers_a_stack();
  stop_requested.store(0);
  stop_requested_at.store(0);
  save_requested.store(false);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action {};
    // Only the trainer handles EINTR.
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    switch (kSignals[i]) {
      case SIGPIPE: action.sa_handler = SIG_IGN; break;
      case SIGUSR1: action.sa_handler = on_save; break;
      default: action.sa_handler = on_stop; break;
    }
    QUENCH_CHECK_AS(ErrorCode::failed, ::sigaction(kSignals[i], &action, &previous_[i]) == 0,
                    "cannot handle signal {}: {}", kSignals[i], errno_text(errno));
    if (kSignals[i] == SIGHUP && previous_[i].sa_handler == SIG_IGN) ::sigaction(SIGHUP, &previous_[i], nullptr);
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

std::function<int()> poll_stop_signals() {
  return [handlers = std::make_shared<SignalHandlers>()] { return handlers->stop_signal(); };
}

std::string signal_text(int signal) {
  switch (signal) {
    case SIGINT: return "Ctrl-C";
    case SIGTERM: return "SIGTERM";
    case SIGHUP: return "SIGHUP";
    default: return fmt::format("signal {}", signal);
  }
}

}  // namespace quench
