#pragma once
// Who listens on a port of this machine.

#include <string>

namespace quench::distributed {

// "process 1234 (python3)"; empty where it cannot be seen (another user's process, no /proc).
[[nodiscard]] std::string port_owner(int port);

}  // namespace quench::distributed
