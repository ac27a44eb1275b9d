#pragma once
// Addresses by which other nodes reach this one. A name may resolve to loopback on its own machine alone (Debian maps a
// host's name to 127.0.1.1). Endpoints that name loopback itself stay there: all nodes are on this machine.

#include <string>

#include "distributed/store/socket.h"
#include "distributed/store/store.h"

namespace quench::distributed {

// For listen_on: all addresses if the endpoint is this machine's name, or a name that resolves to loopback.
[[nodiscard]] Endpoint listening_place(const Endpoint& endpoint);

// Address of the interface that reaches the store. Where the store's name resolves to loopback: of the default route,
// else of the first interface that is up; loopback if there is no other.
[[nodiscard]] std::string address_for_nodes(const Store& store);

}  // namespace quench::distributed
