#include "apps/thread_waiting.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <string>

namespace quench {
namespace {

constexpr const char* kSpinCount = "GOMP_SPINCOUNT";
// Spin iterations of about ten nanoseconds each: three times the runtime's own value for oversubscribed cores. With
// 10,000, generation takes two to three times as long on a loaded machine.
constexpr const char* kSpins = "3000";
constexpr const char* kChosen = "QUENCH_SPINCOUNT_CHOSEN";

// Path of the executable; empty if unknown or deleted.
std::string program_file() {
  std::string path(PATH_MAX, '\0');
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  path.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  return path;
}

}  // namespace

void choose_thread_waiting(char** arguments) {
  if (std::getenv(kChosen) != nullptr) {
    ::unsetenv(kChosen);
    ::unsetenv(kSpinCount);
    return;
  }
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv(kSpinCount) != nullptr) return;
  ::setenv(kSpinCount, kSpins, 0);
  ::setenv(kChosen, "1", 0);
  ::execv(program_file().c_str(), arguments);
  // Re-execution failed: the runtime's default applies.
  ::unsetenv(kChosen);
  ::unsetenv(kSpinCount);
}

}  // namespace quench
