#include "distributed/launcher/supervisor.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/system/check.h"
#include "core/system/file.h"

namespace quench::distributed {
namespace {

constexpr int kKillRounds = 1000;
constexpr int kKillPauseMs = 10;

struct Report {
  enum Kind : int { started, not_forked, not_executed, ended };
  Kind kind;
  int worker;
  int value;  // process, errno or wait status
};

std::array<Socket, 2> open_pipe() {
  int ends[2];
  QUENCH_CHECK_AS(ErrorCode::failed, ::pipe2(ends, O_CLOEXEC) == 0, "pipe: {}", errno_text(errno));
  return {Socket(ends[0]), Socket(ends[1])};
}

// All of the supervisor's memory comes from the launcher: the forked process makes system calls only.
struct Plan {
  std::vector<PreparedWorker> workers;
  std::vector<pid_t> processes;
  int reports;
  int control;
  DIR* proc;  // may be null
};

void close_between(int first, int last) {
  if (first > last || ::close_range(static_cast<unsigned>(first), static_cast<unsigned>(last), 0) == 0) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  for (int file = first; file <= last && static_cast<rlim_t>(file) < limit.rlim_cur; ++file) ::close(file);
}

// Inherited descriptors would keep files, ports, pipes and the console open.
void close_all_but(std::array<int, 4> kept) {
  std::sort(kept.begin(), kept.end());
  int first = STDERR_FILENO + 1;
  for (const int file : kept) {
    close_between(first, file - 1);
    first = std::max(first, file + 1);
  }
  close_between(first, ~0U >> 1);
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::close(file);
    [[maybe_unused]] const int opened = ::open("/dev/null", O_RDWR);
  }
}

// Parent of a process; 0: unknown.
pid_t parent_of(const char* process, int proc) {
  constexpr std::size_t kDigits = 20;
  char path[kDigits + sizeof "/stat"], text[512];
  const std::size_t length = ::strnlen(process, kDigits);
  std::memcpy(path, process, length);
  std::memcpy(path + length, "/stat", sizeof "/stat");
  const int file = ::openat(proc, path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t got = ::read(file, text, sizeof text - 1);
  ::close(file);
  text[std::max<ssize_t>(got, 0)] = '\0';
  const char* name_end = std::strrchr(text, ')');  // then " S PARENT "
  return name_end == nullptr || std::strlen(name_end) < 4 ? 0 : std::atoi(name_end + 4);
}

// Children of the killed become children of this process, until none is left.
void kill_descendants(const Plan& plan) {
  const pid_t self = ::getpid();
  for (int round = 0; round < kKillRounds; ++round) {
    for (const pid_t process : plan.processes)
      if (process > 0) ::kill(-process, SIGKILL);
    if (plan.proc != nullptr) ::rewinddir(plan.proc);
    while (const dirent* entry = plan.proc == nullptr ? nullptr : ::readdir(plan.proc))
      if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && parent_of(entry->d_name, ::dirfd(plan.proc)) == self)
        ::kill(std::atoi(entry->d_name), SIGKILL);
    pid_t ended = 0;
    do {
      ended = ::waitpid(-1, nullptr, WNOHANG);
    } while (ended > 0);
    if (ended < 0 && errno == ECHILD) return;
    ::poll(nullptr, 0, kKillPauseMs);
  }
}

void report(const Plan& plan, const Report& words) {
  [[maybe_unused]] const ssize_t written = ::write(plan.reports, &words, sizeof words);
}

void reap(Plan& plan) {
  int status = 0;
  for (pid_t process = 0; (process = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto worker = std::find(plan.processes.begin(), plan.processes.end(), process);
    if (worker == plan.processes.end()) continue;
    ::kill(-process, SIGKILL);
    *worker = -1;
    report(plan, {Report::ended, static_cast<int>(worker - plan.processes.begin()), status});
  }
}

[[noreturn]] void supervise(Plan& plan) {
  ::prctl(PR_SET_NAME, "quench-reaper");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP}) ::signal(signal, SIG_IGN);
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  const int children = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  for (std::size_t i = 0; i < plan.workers.size(); ++i) {
    const PreparedWorker::Start start = plan.workers[i].start();
    const int worker = static_cast<int>(i);
    if (start.process > 0) {
      plan.processes[i] = start.process;
      report(plan, {Report::started, worker, start.process});
      continue;
    }
    kill_descendants(plan);
    report(plan, {start.forked ? Report::not_executed : Report::not_forked, worker, start.error});
    ::_exit(1);
  }
  ::setsid();  // workers stay in the launcher's session
  close_all_but({plan.reports, plan.control, children, plan.proc == nullptr ? children : ::dirfd(plan.proc)});
  while (true) {
    std::array<pollfd, 2> entries = {{{plan.control, POLLIN, 0}, {children, POLLIN, 0}}};
    if (::poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) break;
    signalfd_siginfo info;
    while (::read(children, &info, sizeof info) > 0) {
    }
    reap(plan);
    char word = 0;
    if (entries[0].revents == 0) continue;
    if (::read(plan.control, &word, 1) == 1) ::_exit(0);
    break;
  }
  kill_descendants(plan);
  ::_exit(0);
}

// As read(2).
ssize_t read_report(const Socket& reports, Report& words) {
  ssize_t got = 0;
  do {
    got = ::read(reports.descriptor(), &words, sizeof words);
  } while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

Supervisor::Supervisor(const std::vector<WorkerStart>& workers)
    : processes_(workers.size(), -1), running_(workers.size(), true) {
  std::array<Socket, 2> reports = open_pipe(), control = open_pipe();
  reports_ = std::move(reports[0]);
  control_ = std::move(control[1]);
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  Plan plan{{}, processes_, reports[1].descriptor(), control[0].descriptor(), proc.get()};
  for (const WorkerStart& worker : workers) plan.workers.emplace_back(worker);
  supervisor_ = fork_process();
  if (supervisor_ == 0) supervise(plan);
  reports[1].close();
  try {
    read_starts(workers);
  } catch (const Error&) {
    end();
    throw;
  }
  ::fcntl(reports_.descriptor(), F_SETFL, O_NONBLOCK);
}

Supervisor::~Supervisor() {
  end();
}

void Supervisor::read_starts(const std::vector<WorkerStart>& workers) {
  for (std::size_t i = 0; i < workers.size(); ++i) {
    Report words{};
    QUENCH_CHECK_AS(ErrorCode::failed, read_report(reports_, words) == static_cast<ssize_t>(sizeof words),
                    "the supervisor of the processes was killed");
    QUENCH_CHECK_AS(ErrorCode::failed, words.kind != Report::not_forked, "{}", fork_error(words.value));
    QUENCH_CHECK_AS(ErrorCode::bad_config, words.kind == Report::started, "cannot start '{}': {}",
                    workers[i].command.front(), errno_text(words.value));
    processes_[i] = words.value;
  }
}

void Supervisor::end() noexcept {
  control_.close();
  while (::waitpid(supervisor_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<Supervisor::Ended> Supervisor::take() {
  Report words{};
  const ssize_t got = read_report(reports_, words);
  if (got < 0 && errno == EAGAIN) return std::nullopt;
  if (got == static_cast<ssize_t>(sizeof words)) {
    running_[static_cast<std::size_t>(words.worker)] = false;
    return Ended{static_cast<std::size_t>(words.worker), words.value};
  }
  const auto running = std::find(running_.begin(), running_.end(), true);
  if (running == running_.end()) return std::nullopt;
  *running = false;
  return Ended{static_cast<std::size_t>(running - running_.begin()), SIGKILL};
}

void Supervisor::release() noexcept {
  const char word = 'r';
  [[maybe_unused]] const ssize_t written = ::write(control_.descriptor(), &word, 1);
}

}  // namespace quench::distributed
