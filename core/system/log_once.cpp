#include "core/system/log_once.h"

#include <mutex>
#include <set>

namespace quench {

void write_log_once(LogLevel level, const std::string& message) {
  static std::mutex mutex;
  static std::set<std::string> known;
  if (!is_logged(level)) return;
  const std::lock_guard lock(mutex);
  if (known.insert(message).second) write_log(level, message);
}

}  // namespace quench
