#include "distributed/store/port_owner.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace quench::distributed {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kListening = "0A";  // TCP_LISTEN in /proc/net/tcp

// "socket:[12345]", as in /proc/PID/fd.
std::vector<std::string> listening_sockets(int port) {
  std::vector<std::string> result;
  const std::string wanted = fmt::format(":{:04X}", port);
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
      if (state == kListening && local.ends_with(wanted)) result.push_back("socket:[" + inode + "]");
    }
  }
  return result;
}

}  // namespace

std::string port_owner(int port) {
  const std::vector<std::string> sockets = listening_sockets(port);
  std::error_code ignored;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", ignored)) {
    const std::string id = process.path().filename();
    if (id.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code denied;
    for (const fs::directory_entry& file : fs::directory_iterator(process.path() / "fd", denied)) {
      const std::string target = fs::read_symlink(file.path(), ignored).string();
      if (std::find(sockets.begin(), sockets.end(), target) == sockets.end()) continue;
      std::string name;
      std::getline(std::ifstream(process.path() / "comm"), name);
      return fmt::format("process {} ({})", id, name);
    }
  }
  return {};
}

}  // namespace quench::distributed
