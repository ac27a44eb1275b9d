#pragma once
// Full TCP mesh of a group's ranks. Gloo's pairs accept any connection as their peer: here the higher rank first
// connects to the PeerListener of the lower one (address in the store) and both authenticate. Gloo binds to loopback
// only.

#include <gloo/context.h>
#include <gloo/transport/tcp/device.h>

#include <memory>
#include <string>

#include "distributed/engine.h"

namespace quench::distributed {

// Address of Mesh's device.
inline constexpr const char* kPairAddress = "127.0.0.2";

class Mesh final : public gloo::Context {
 public:
  using gloo::Context::Context;

  // Throws CommunicationError if a rank ends or does not connect in time.
  void connect(const std::shared_ptr<gloo::transport::tcp::Device>& device, Store& store, const std::string& prefix,
               const GroupOptions& options);
};

}  // namespace quench::distributed
