#pragma once
// Full TCP mesh of a group's ranks.
//
// Gloo's pairs accept any incoming connection as their peer. Here connections are made and authenticated first: the
// higher rank connects to the PeerListener of the lower one, whose address is in the store. Gloo itself binds to
// loopback only.

#include <gloo/context.h>
#include <gloo/transport/tcp/device.h>

#include <memory>
#include <string>

#include "distributed/engine.h"

namespace quench::distributed {

// Bind address of a device for Mesh.
inline constexpr const char* kPairAddress = "127.0.0.2";

class Mesh final : public gloo::Context {
 public:
  using gloo::Context::Context;

  // Throws CommunicationError if a rank ends or does not connect in time.
  void connect(const std::shared_ptr<gloo::transport::tcp::Device>& device, Store& store, const std::string& prefix,
               const GroupOptions& options);
};

}  // namespace quench::distributed
