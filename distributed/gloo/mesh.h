#pragma once
// All ranks of a group, connected to each other over TCP.
//
// Gloo's own pairs listen on a port each and take the first connection that comes, from anywhere, for their peer. Here
// the connections are made, and both ends proved, before Gloo gets them: of two ranks the higher one connects to the
// lower one's PeerListener, whose address travels through the store. Gloo itself sees loopback addresses alone.

#include <gloo/context.h>
#include <gloo/transport/tcp/device.h>

#include <memory>
#include <string>

#include "distributed/engine.h"

namespace quench::distributed {

// The address that a device for Mesh is made with.
inline constexpr const char* kPairAddress = "127.0.0.2";

class Mesh final : public gloo::Context {
 public:
  using gloo::Context::Context;

  // Throws CommunicationError when a rank ends meanwhile or does not come in time.
  void connect(const std::shared_ptr<gloo::transport::tcp::Device>& device, Store& store, const std::string& prefix,
               const GroupOptions& options);
};

}  // namespace quench::distributed
