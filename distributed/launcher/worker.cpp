#include "distributed/launcher/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "core/system/check.h"
#include "core/system/file.h"

namespace quench::distributed {
namespace {

constexpr int kCannotStart = 127;

// As by a shell; the word itself if none.
std::string find_program(const std::string& word) {
  const char* path = std::getenv("PATH");
  if (word.find('/') != std::string::npos || path == nullptr) return word;
  std::string_view rest = path;
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    const std::string file = (folder.empty() ? std::string(".") : std::string(folder)) + "/" + word;
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return word;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

}  // namespace

PreparedWorker::PreparedWorker(const WorkerStart& start)
    : program_(find_program(start.command.front())),
      words_(start.command),
      variables_(start.environment),
      arguments_(pointers(words_)),
      environment_(pointers(variables_)),
      stdout_to_(start.stdout_to),
      stderr_to_(start.stderr_to) {}

void PreparedWorker::become(pid_t parent, int report) const noexcept {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kCannotStart);  // parent died before prctl
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  if (stdout_to_ >= 0) ::dup2(stdout_to_, STDOUT_FILENO);
  if (stderr_to_ >= 0) ::dup2(stderr_to_, STDERR_FILENO);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(program_.c_str(), arguments_.data(), environment_.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(report, &error, sizeof error);
  ::_exit(kCannotStart);
}

PreparedWorker::Start PreparedWorker::start() const noexcept {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {.error = errno};
  const pid_t parent = ::getpid();
  const pid_t worker = ::fork();
  if (worker == 0) become(parent, ends[1]);
  const int fork_failure = errno;
  ::close(ends[1]);
  int error = 0;
  ssize_t got = 0;
  if (worker > 0) {
    ::setpgid(worker, worker);  // also here, against a race
    do {
      got = ::read(ends[0], &error, sizeof error);
    } while (got < 0 && errno == EINTR);
  }
  ::close(ends[0]);
  if (worker < 0) return {.error = fork_failure};
  if (got == 0) return {.process = worker, .forked = true};
  ::waitpid(worker, nullptr, 0);
  return {.forked = true, .error = error};
}

std::string fork_error(int number) {
  return fmt::format("cannot start a process: {}{}", errno_text(number),
                     number == EAGAIN ? "; raise the limit of processes and threads (ulimit -u)" : "");
}

pid_t fork_process() {
  const pid_t process = ::fork();
  QUENCH_CHECK_AS(ErrorCode::failed, process >= 0, "{}", fork_error(errno));
  return process;
}

void signal_worker(pid_t worker, int signal) noexcept {
  if (::kill(-worker, signal) != 0) ::kill(worker, signal);
}

std::string describe_status(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return fmt::format("status {}", WEXITSTATUS(wait_status));
  return fmt::format("signal {} ({})", WTERMSIG(wait_status), ::strsignal(WTERMSIG(wait_status)));
}

int exit_code(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

}  // namespace quench::distributed
