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

// In the forked process (single thread): system calls only.
[[noreturn]] void become(const char* program, char* const* arguments, char* const* environment,
                         const WorkerStart& start, pid_t launcher, int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(kCannotStart);  // launcher died before prctl
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  if (start.stdout_to >= 0) ::dup2(start.stdout_to, STDOUT_FILENO);
  if (start.stderr_to >= 0) ::dup2(start.stderr_to, STDERR_FILENO);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(program, arguments, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(report, &error, sizeof error);
  ::_exit(kCannotStart);
}

}  // namespace

pid_t fork_process() {
  const pid_t process = ::fork();
  QUENCH_CHECK_AS(ErrorCode::failed, process >= 0, "cannot start a process: {}{}", errno_text(errno),
                  errno == EAGAIN ? "; raise the limit of processes and threads (ulimit -u)" : "");
  return process;
}

pid_t start_worker(const WorkerStart& start) {
  const std::string program = find_program(start.command.front());
  const std::vector<char*> arguments = pointers(start.command), environment = pointers(start.environment);
  int ends[2];
  QUENCH_CHECK_AS(ErrorCode::failed, ::pipe2(ends, O_CLOEXEC) == 0, "pipe: {}", errno_text(errno));
  const Socket report(ends[0]);
  Socket other(ends[1]);
  const pid_t launcher = ::getpid();
  const pid_t worker = fork_process();
  if (worker == 0) become(program.c_str(), arguments.data(), environment.data(), start, launcher, ends[1]);
  ::setpgid(worker, worker);  // also here, against a race
  other.close();
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(report.descriptor(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == 0) return worker;
  int status = 0;
  ::waitpid(worker, &status, 0);
  QUENCH_FAIL(ErrorCode::bad_config, "cannot start '{}': {}", start.command.front(), errno_text(error));
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
