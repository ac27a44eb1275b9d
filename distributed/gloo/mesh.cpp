#include "distributed/gloo/mesh.h"

#include <fcntl.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/address.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/system/file.h"
#include "distributed/communication_error.h"
#include "distributed/gloo/peer_listener.h"
#include "distributed/store/node_addresses.h"
#include "distributed/watchdog.h"

namespace quench::distributed {
namespace {

namespace tcp = gloo::transport::tcp;

// Gloo connects from the higher address (kPairAddress) to the lower.
constexpr const char* kPlaceAddress = "127.0.0.1";
constexpr auto kLook = std::chrono::milliseconds(200);  // for lost ranks
constexpr auto kTry = std::chrono::seconds(1);          // connect timeout between polls

using SocketAddress = std::pair<sockaddr_storage, socklen_t>;

std::optional<SocketAddress> address_of(int descriptor, decltype(&::getsockname) which) {
  SocketAddress address{{}, sizeof(sockaddr_storage)};
  if (which(descriptor, reinterpret_cast<sockaddr*>(&address.first), &address.second) != 0) return std::nullopt;
  return address;
}

// -1 if none.
int find_connection_to(const SocketAddress& address) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    const std::optional<SocketAddress> peer = address_of(descriptor, &::getpeername);
    if (peer && peer->second == address.second && std::memcmp(&peer->first, &address.first, address.second) == 0)
      return descriptor;
  }
  return -1;
}

// Hands an authenticated connection to a Gloo pair, which accepts only its own: it connects to a local listener, and
// dup3 replaces its descriptor.
void adopt(gloo::transport::Context& context, tcp::Device& device, int peer, Socket socket) {
  const Socket place = listen_on({kPlaceAddress, 0});
  const std::optional<SocketAddress> address = address_of(place.descriptor(), &::getsockname);
  QUENCH_CHECK_AS(ErrorCode::failed, address.has_value(), "address of a socket: {}", errno_text(errno));
  gloo::transport::Pair& pair = *context.createPair(peer);
  pair.connect(tcp::Address(reinterpret_cast<const sockaddr*>(&address->first), address->second).bytes());
  const int descriptor = find_connection_to(*address);
  QUENCH_CHECK_AS(ErrorCode::failed, descriptor >= 0, "the connection of a pair is not among /proc/self/fd");
  auto* handler = dynamic_cast<tcp::Handler*>(&pair);
  QUENCH_CHECK(handler != nullptr, "a pair of Gloo's TCP transport is no handler of its loop");
  // Operations may idle up to the watchdog's limit.
  unset_keep_alive(socket);
  // The event loop watches the old connection, closed here.
  device.unregisterDescriptor(descriptor, handler);
  QUENCH_CHECK_AS(ErrorCode::failed, ::dup3(socket.descriptor(), descriptor, O_CLOEXEC) == descriptor, "dup3: {}",
                  errno_text(errno));
  device.registerDescriptor(descriptor, EPOLLIN, handler);
}

std::string address_key(const std::string& prefix, int rank) {
  return fmt::format("{}gloo/{}", prefix, rank);
}

Socket connect_to_peer(const std::string& address, const std::string& secret, int rank, Deadline deadline,
                       const Watchdog* watchdog) {
  const Endpoint endpoint = parse_endpoint(address, 0, "the address of another rank");
  while (true) {
    try {
      return connect_with_proof(endpoint, secret, static_cast<std::uint32_t>(rank),
                                std::min<Deadline>(deadline, Clock::now() + kTry));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::bad_config || Clock::now() >= deadline) throw;
    }
    if (watchdog != nullptr) watchdog->check();
  }
}

}  // namespace

void Mesh::connect(const std::shared_ptr<tcp::Device>& device, Store& store, const std::string& prefix,
                   const GroupOptions& options) {
  const Deadline deadline = Clock::now() + options.join_timeout;
  const Watchdog* watchdog = options.watchdog.get();
  const std::string secret = store.derived_secret(prefix + "gloo");
  device_ = device;
  transportContext_ = device->createContext(rank, size);
  transportContext_->setTimeout(options.join_timeout);
  std::optional<PeerListener> listener;
  if (rank + 1 < size) {
    const std::string address = options.several_nodes ? address_for_nodes(store) : store.address();
    listener.emplace(listen_on({address, 0}), secret);
    store.set(address_key(prefix, rank), Endpoint{address, listener->port()}.to_string());
  }
  for (int peer = 0; peer < rank; ++peer) {
    const std::optional<std::string> address =
        wait_watched(store, address_key(prefix, peer), options.join_timeout, watchdog);
    if (!address) throw CommunicationError(fmt::format("rank {} has not come", peer));
    adopt(*transportContext_, *device, peer, connect_to_peer(*address, secret, rank, deadline, watchdog));
  }
  for (int peer = rank + 1; peer < size; ++peer) {
    std::optional<Socket> connection = listener->wait(peer, kLook);
    for (; !connection; connection = listener->wait(peer, kLook)) {
      if (watchdog != nullptr) watchdog->check();
      if (Clock::now() >= deadline) throw CommunicationError(fmt::format("rank {} has not come", peer));
    }
    adopt(*transportContext_, *device, peer, *std::move(connection));
  }
}

}  // namespace quench::distributed
