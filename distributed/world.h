#pragma once
// All ranks of a run: rendezvous, store, and group creation.

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "distributed/engine.h"
#include "distributed/environment.h"
#include "distributed/process_group.h"
#include "distributed/store/server.h"
#include "distributed/store/store.h"
#include "distributed/watchdog.h"

namespace quench::distributed {

class World {
 public:
  // Collective over the ranks of the environment. Throws after options.join_timeout, naming the missing ranks. Rank 0
  // serves the store unless the launcher does. `device`: CPU or this rank's GPU.
  [[nodiscard]] static std::unique_ptr<World> join(const Environment& environment, Device device,
                                                   const GroupOptions& options = {});
  // Rank 0 of 1, without communication.
  [[nodiscard]] static std::unique_ptr<World> alone(Device device);
  // Rank `rank` of `size` on the meta device.
  [[nodiscard]] static std::unique_ptr<World> planned(int rank, int size);
  // Rank 0 waits, with a time limit, for the other ranks if it serves the store. During stack unwinding, the other
  // ranks are notified of a failure.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] int rank() const noexcept { return environment_.rank; }
  [[nodiscard]] int size() const noexcept { return environment_.world_size; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] const Environment& environment() const noexcept { return environment_; }

  // All ranks, device tensors.
  [[nodiscard]] ProcessGroup& all() noexcept { return *all_; }
  // All ranks, CPU tensors: flags, sizes, hashes.
  [[nodiscard]] ProcessGroup& host() noexcept { return *host_; }
  // Group of these world ranks, in this order, for device tensors. Collective over them only. The name must be equal on
  // all of them and unique.
  [[nodiscard]] std::unique_ptr<ProcessGroup> make_group(const std::string& name, std::span<const int> ranks);

  // Additional group of all ranks for CPU tensors, for use on another thread than host(). Collective.
  [[nodiscard]] std::unique_ptr<ProcessGroup> make_host_group(const std::string& name);

  // All-gather of strings, by rank. Collective; at most 1 MiB each. `what` is for messages.
  [[nodiscard]] std::vector<std::string> exchange(const std::string& what, std::string_view text);
  // Collective: throws bad_config on every rank, with the differing lines, unless all ranks pass the same text.
  void require_equal(const std::string& what, std::string_view text);

  // Null for a world of one rank and on the meta device.
  [[nodiscard]] Store* store() noexcept { return store_.get(); }
  // Key prefix of this attempt.
  [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }

 private:
  World(Environment environment, Device device, const GroupOptions& options);
  // Checks consistency of all ranks, starts the watchdog, and waits for all ranks.
  void meet();
  // Description of a rank; nothing on a timeout. Throws CommunicationError on a lost rank; bad_config before the first
  // meeting if a process that may be this rank was refused for its token.
  [[nodiscard]] std::optional<std::string> wait_for_rank(int rank, const std::string& key,
                                                         std::chrono::milliseconds timeout);
  [[nodiscard]] std::unique_ptr<ProcessGroup> watched(std::unique_ptr<ProcessGroup> group) const;

  Environment environment_;
  Device device_;
  GroupOptions options_;
  std::string prefix_;
  int exchanges_ = 0;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<Store> store_;
  std::shared_ptr<Watchdog> watchdog_;
  std::unique_ptr<GroupEngine> engine_;
  std::unique_ptr<GroupEngine> host_engine_;
  std::unique_ptr<ProcessGroup> all_;
  std::unique_ptr<ProcessGroup> host_;
};

}  // namespace quench::distributed
