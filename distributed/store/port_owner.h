#pragma once
// Process that listens on a local port.

#include <string>

namespace quench::distributed {

// "process 1234 (python3)"; empty if not visible (another user's process, no /proc).
[[nodiscard]] std::string port_owner(int port);

}  // namespace quench::distributed
