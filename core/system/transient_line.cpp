#include "core/system/transient_line.h"

#include <atomic>

namespace quench {
namespace {

std::atomic<int> transient_columns{0};

}  // namespace

void set_transient_line(int columns) noexcept {
  transient_columns = columns;
}

std::string take_transient_line() {
  const int columns = transient_columns.exchange(0);
  return columns > 0 ? std::string(static_cast<std::size_t>(columns), ' ') + '\r' : std::string();
}

}  // namespace quench
