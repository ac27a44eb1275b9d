#include "distributed/launcher/agent.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <optional>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/printable.h"
#include "core/system/signals.h"
#include "distributed/launcher/worker_set.h"

namespace quench::distributed {
namespace {

constexpr int kOwnDescriptors = 17;  // signals, events, store, supervisor
// Collects further failures and messages after the first.
constexpr auto kSettle = std::chrono::milliseconds(200);
constexpr std::array<int, 4> kStopSignals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

bool is_stop_signal(int number) {
  return std::find(kStopSignals.begin(), kStopSignals.end(), number) != kStopSignals.end();
}

// Stop signals by signalfd.
class Signals {
 public:
  Signals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int number : kStopSignals) ::sigaddset(&set, number);
    ::pthread_sigmask(SIG_BLOCK, &set, &previous_);
    // Ignored signals (SIGHUP under nohup) stay ignored.
    descriptor_ = Socket(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    QUENCH_CHECK_AS(ErrorCode::failed, descriptor_.is_open(), "signalfd: {}", errno_text(errno));
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGCHLD, SIG_DFL);  // else children leave no exit status, also the supervisor's
  }
  ~Signals() { ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  [[nodiscard]] int descriptor() const { return descriptor_.descriptor(); }
  // 0: none.
  [[nodiscard]] int take() const {
    signalfd_siginfo info{};
    if (::read(descriptor_.descriptor(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return 0;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t previous_{};
  Socket descriptor_;
};

// User-defined, or temporary and removed after success.
class LogFolder {
 public:
  explicit LogFolder(const LaunchOptions& options) : kept_(!options.log_dir.empty()) {
    std::error_code error;
    const std::filesystem::path base = kept_ ? options.log_dir : std::filesystem::temp_directory_path(error);
    QUENCH_CHECK_AS(ErrorCode::io, !error, "no folder for temporary files: {}; give --log-dir", error.message());
    std::filesystem::create_directories(base, error);
    QUENCH_CHECK_AS(ErrorCode::io, !error, "cannot create a log folder in {}: {}", base.string(), error.message());
    std::string pattern = (base / fmt::format("{}_XXXXXX", kept_ ? options.job : "quench-run-" + options.job)).string();
    QUENCH_CHECK_AS(ErrorCode::io, ::mkdtemp(pattern.data()) != nullptr, "cannot create a log folder in {}: {}",
                    base.string(), errno_text(errno));
    path_ = std::filesystem::absolute(pattern);
  }
  ~LogFolder() {
    std::error_code ignored;
    if (!kept_) std::filesystem::remove_all(path_, ignored);
  }
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  void keep() noexcept { kept_ = true; }

 private:
  bool kept_;
  std::filesystem::path path_;
};

class Agent {
 public:
  Agent(const LaunchOptions& options, const std::vector<std::string>& command, const std::string& title)
      : options_(options),
        command_(command),
        title_(title),
        remote_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        logs_(options),
        rendezvous_(options) {
    QUENCH_CHECK_AS(ErrorCode::failed, remote_event_.is_open(), "eventfd: {}", errno_text(errno));
  }

  int run() {
    std::optional<Failure> last;
    std::vector<Failure> before_first_step;  // since the last attempt that completed a step
    auto backoff = options_.first_backoff;
    for (int least_round = 0;;) {
      const std::optional<Round> round = rendezvous_.join(least_round, [this] { return look_for_stop(); });
      if (!round) return exit_status_of_signal(stop_signal_);
      const Deadline begin = Clock::now();
      const std::optional<Failure> failure = run_round(*round);
      if (stop_signal_ != 0) return stopped_status(failure);
      if (!failure) return 0;
      const bool asked = is_stop_signal(failure->status - 128) && failure->ending.starts_with("status");
      if (round->number >= options_.max_restarts || asked) {
        rendezvous_.leave(*round);
        return failure->status;
      }
      const bool again = std::any_of(before_first_step.begin(), before_first_step.end(),
                                     [&](const Failure& earlier) { return same_failure(earlier, *failure); });
      if (again || (last && same_failure(*last, *failure))) {
        QUENCH_LOG_ERROR("not restarted: rank {} has failed with the same error {} twice in a row", failure->rank,
                         failure->step == 0 ? "before the first step" : fmt::format("at step {}", failure->step));
        rendezvous_.leave(*round);
        return failure->status;
      }
      last = failure;
      if (failure->step != 0)
        before_first_step.clear();
      else
        before_first_step.push_back(*failure);
      if (Clock::now() - begin > options_.most_backoff) backoff = options_.first_backoff;
      QUENCH_LOG_WARN("restarting all workers in {} s: restart {} of {}", static_cast<double>(backoff.count()) / 1000,
                      round->number + 1, options_.max_restarts);
      if (!wait_for_restart(backoff)) return exit_status_of_signal(stop_signal_);
      backoff = std::min(2 * backoff, options_.most_backoff);
      least_round = round->number + 1;
    }
  }

 private:
  // False if stopped by a signal.
  bool wait_for_restart(std::chrono::milliseconds time) {
    const Deadline end = Clock::now() + time;
    while (!look_for_stop() && Clock::now() < end) {
      pollfd entry{signals_.descriptor(), POLLIN, 0};
      ::poll(&entry, 1, poll_timeout(end));
    }
    return stop_signal_ == 0;
  }

  // Until all workers have exited. Nothing on success of all nodes, else the root cause.
  std::optional<Failure> run_round(const Round& round) {
    remote_.reset();
    WorkerSet workers(options_, command_, round, rendezvous_.store_endpoint(), logs_.path());
    rendezvous_.watch(round, [this](const Failure& failure) {
      {
        const std::scoped_lock lock(mutex_);
        remote_ = failure;
      }
      const std::uint64_t one = 1;
      [[maybe_unused]] const ssize_t written = ::write(remote_event_.descriptor(), &one, sizeof one);
    });
    workers.reap();
    bool told = false;
    const auto tell_ended = [&] {
      if (told || workers.early_ranks().empty()) return;
      rendezvous_.tell_ended(round, workers.early_ranks().front());
      told = true;
    };
    while (workers.any_running() && workers.failures().empty() && !remote_failure() && stop_signal_ == 0) {
      tell_ended();
      wait_once(workers, Clock::now() + options_.monitor_interval);
    }
    tell_ended();  // other nodes' ranks may wait
    if (workers.any_running()) end_workers(workers);
    workers.pump();
    std::optional<Failure> failure = judge(round, workers);
    if (!failure && stop_signal_ == 0) workers.release();
    return failure;
  }

  // Handles one event, or returns at the deadline.
  void wait_once(WorkerSet& workers, Deadline until) {
    std::vector<pollfd> entries = {{signals_.descriptor(), POLLIN, 0}, {remote_event_.descriptor(), POLLIN, 0}};
    workers.add_descriptors(entries);
    ::poll(entries.data(), entries.size(), std::max(1, poll_timeout(until)));
    workers.pump();
    while (const int number = signals_.take()) take_signal(number, &workers);
    workers.reap();
  }

  void take_signal(int number, WorkerSet* workers) {
    if (stop_signal_ == 0) {
      stop_signal_ = number;
      stop_time_ = Clock::now();
      if (workers != nullptr) workers->signal(number);
    } else if (Clock::now() - stop_time_ >= std::chrono::seconds(kSecondStopSeconds)) {
      at_once_ = true;
    }
  }

  bool look_for_stop() {
    while (const int number = signals_.take()) take_signal(number, nullptr);
    return stop_signal_ != 0;
  }

  std::optional<Failure> remote_failure() {
    const std::scoped_lock lock(mutex_);
    return remote_;
  }

  // After a failure or a forwarded stop signal.
  void end_workers(WorkerSet& workers) {
    if (stop_signal_ == 0) {
      const Deadline settled = Clock::now() + kSettle;
      while (workers.any_running() && Clock::now() < settled && stop_signal_ == 0) wait_once(workers, settled);
      workers.expect_ends();
      if (stop_signal_ == 0) workers.signal(SIGTERM);
    }
    const Deadline deadline = Clock::now() + options_.shutdown_timeout;
    while (workers.any_running() && Clock::now() < deadline && !at_once_) wait_once(workers, deadline);
    if (!workers.any_running()) return;
    QUENCH_LOG_WARN("killing workers that have not ended {}",
                    at_once_
                        ? "at a second signal"
                        : fmt::format("within {} s", static_cast<double>(options_.shutdown_timeout.count()) / 1000));
    killed_ = true;
    workers.expect_ends();
    workers.signal(SIGKILL);
    while (workers.any_running()) wait_once(workers, Clock::now() + options_.monitor_interval);
  }

  std::optional<Failure> judge(const Round& round, const WorkerSet& workers) {
    std::vector<Failure> failures = workers.failures();
    const std::optional<Failure> remote = remote_failure();
    if (stop_signal_ != 0 && !failures.empty()) return failures[root_cause(failures)];
    if (failures.empty() && !remote && killed_) return std::nullopt;
    if (failures.empty() && !remote) {
      std::optional<Failure> other = rendezvous_.finish(round, [this] { return look_for_stop(); });
      if (other) failures.push_back(*other);
    } else if (remote) {
      failures.push_back(*remote);
    }
    rendezvous_.stop_watching();
    if (failures.empty()) return std::nullopt;
    const Failure own = failures[root_cause(failures)];
    Failure first = own;
    try {
      if (options_.nodes > 1) first = rendezvous_.report(round, own);
    } catch (const Error& error) {
      QUENCH_LOG_WARN("the other nodes cannot be told: {}", error.what());
    }
    const bool known = std::any_of(failures.begin(), failures.end(), [&](const Failure& failure) {
      return failure.rank == first.rank && failure.node == first.node && failure.process == first.process;
    });
    if (!known) failures.push_back(first);
    if (std::any_of(failures.begin(), failures.end(), [](const Failure& failure) { return !failure.logs.empty(); }))
      logs_.keep();
    // Untrusted text: error files of any program, other nodes.
    const std::string report = printable(failure_report(title_, failures));
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, report.data(), report.size());
    return failures[root_cause(failures)];
  }

  // The stop signal's, unless all workers had finished.
  [[nodiscard]] int stopped_status(const std::optional<Failure>& failure) const {
    return failure || killed_ ? exit_status_of_signal(stop_signal_) : 0;
  }

  const LaunchOptions& options_;
  const std::vector<std::string>& command_;
  const std::string& title_;
  Signals signals_;
  Socket remote_event_;
  LogFolder logs_;
  Rendezvous rendezvous_;
  std::mutex mutex_;
  std::optional<Failure> remote_;
  int stop_signal_ = 0;
  Deadline stop_time_{};
  bool at_once_ = false;
  bool killed_ = false;
};

}  // namespace

int launch(const LaunchOptions& options, const std::vector<std::string>& command, const std::string& title) {
  const auto streams = [](const std::vector<unsigned>& of_workers) {
    return std::accumulate(of_workers.begin(), of_workers.end(), 0,
                           [](int sum, unsigned of_worker) { return sum + std::popcount(of_worker); });
  };
  // Two store connections per worker; per teed stream a file and a pipe; other files; and the launcher's own.
  const auto hidden = static_cast<int>(std::count(options.on_console.begin(), options.on_console.end(), false));
  require_descriptors(
      kOwnDescriptors + 2 * options.workers + 3 * streams(options.tee) + streams(options.redirects) + 2 * hidden,
      "quench run");
  return Agent(options, command, title).run();
}

}  // namespace quench::distributed
