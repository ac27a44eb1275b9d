#include "distributed/launcher/orphan_reaper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "core/system/check.h"
#include "core/system/file.h"
#include "distributed/launcher/worker.h"

namespace quench::distributed {
namespace {

constexpr int kFirstInherited = 3;
constexpr int kLastInherited = 1023;

// In the forked process (single thread): system calls only.
[[noreturn]] void guard(int pipe) {
  ::setsid();
  ::prctl(PR_SET_NAME, "quench-reaper");
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(signal, SIG_IGN);
  // Inherited descriptors would keep files, ports and the console open.
  for (int file = kFirstInherited; file <= kLastInherited; ++file)
    if (file != pipe) ::close(file);
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::close(file);
    [[maybe_unused]] const int opened = ::open("/dev/null", O_RDWR);
  }
  std::array<pid_t, 2048> groups{};
  std::size_t count = 0;
  pid_t word = 0;
  while (true) {
    const ssize_t got = ::read(pipe, &word, sizeof word);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof word)) break;
    if (word > 0 && count < groups.size()) groups[count++] = word;
    for (std::size_t i = 0; word < 0 && i < count; ++i)
      if (groups[i] == -word) groups[i--] = groups[--count];
  }
  for (std::size_t i = 0; i < count; ++i) ::kill(-groups[i], SIGKILL);
  ::_exit(0);
}

}  // namespace

OrphanReaper::OrphanReaper() {
  int ends[2];
  QUENCH_CHECK_AS(ErrorCode::failed, ::pipe2(ends, O_CLOEXEC) == 0, "pipe: {}", errno_text(errno));
  pipe_ = Socket(ends[1]);
  const Socket other(ends[0]);
  process_ = fork_process();
  if (process_ > 0) return;
  ::close(ends[1]);
  guard(ends[0]);
}

OrphanReaper::~OrphanReaper() {
  pipe_.close();
  int status = 0;
  while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
}

void OrphanReaper::tell(pid_t word) noexcept {
  ssize_t written = 0;
  do {
    written = ::write(pipe_.descriptor(), &word, sizeof word);
  } while (written < 0 && errno == EINTR);
}

}  // namespace quench::distributed
