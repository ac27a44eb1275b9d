#include "distributed/store/node_addresses.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace quench::distributed {
namespace {

constexpr const char* kOutside = "203.0.113.1";  // TEST-NET-3 (RFC 5737): no machine has it
constexpr std::uint16_t kDiscard = 9;

bool is_ipv6(const std::string& address) {
  return address.find(':') != std::string::npos;
}

// Source address of the default route, or empty. Connecting a UDP socket sends nothing.
std::string default_route_address() {
  const Socket socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in outside{};
  outside.sin_family = AF_INET;
  outside.sin_port = htons(kDiscard);
  ::inet_pton(AF_INET, kOutside, &outside.sin_addr);
  if (!socket.is_open() || ::connect(socket.descriptor(), reinterpret_cast<sockaddr*>(&outside), sizeof outside) != 0)
    return {};
  return local_address(socket);
}

// Empty if there is none. IPv4 first.
std::string outside_address() {
  if (std::string address = default_route_address(); !address.empty() && !is_loopback(address)) return address;
  std::vector<std::string> own = own_addresses();
  std::erase_if(own, [](const std::string& address) { return is_loopback(address) || address.starts_with("fe80:"); });
  std::stable_partition(own.begin(), own.end(), [](const std::string& address) { return !is_ipv6(address); });
  return own.empty() ? std::string() : own.front();
}

}  // namespace

Endpoint listening_place(const Endpoint& endpoint) {
  if (is_loopback(endpoint.host)) return endpoint;
  const std::vector<std::string> addresses = addresses_of(endpoint.host);
  if (endpoint.host != host_name() && std::none_of(addresses.begin(), addresses.end(), is_loopback)) return endpoint;
  const bool all_ipv6 = !addresses.empty() && std::all_of(addresses.begin(), addresses.end(), is_ipv6);
  return {all_ipv6 ? "::" : "0.0.0.0", endpoint.port};
}

std::string address_for_nodes(const Store& store) {
  std::string address = store.address();
  if (!is_loopback(address) || is_loopback(store.endpoint().host)) return address;
  std::string outside = outside_address();
  return outside.empty() ? address : outside;
}

}  // namespace quench::distributed
