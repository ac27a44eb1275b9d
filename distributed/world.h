#pragma once
// All ranks of a run, from one rank's side: who they are, their store, and the groups that they make.

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
  // Collective over the ranks of the environment: finds the others, or gives up after options.join_timeout, naming who
  // is missing. Rank 0 serves the store unless the launcher does. `device` is this rank's own: the CPU or one GPU.
  [[nodiscard]] static std::unique_ptr<World> join(const Environment& environment, Device device,
                                                   const GroupOptions& options = {});
  // Rank 0 of 1, without any communication.
  [[nodiscard]] static std::unique_ptr<World> alone(Device device);
  // Rank `rank` of `size` on the meta device.
  [[nodiscard]] static std::unique_ptr<World> planned(int rank, int size);
  // Rank 0 of a store that it serves waits until the others have left, for a while. While an exception is on its way
  // the other ranks are told that this one has ended.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] int rank() const noexcept { return environment_.rank; }
  [[nodiscard]] int size() const noexcept { return environment_.world_size; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] const Environment& environment() const noexcept { return environment_; }

  // All ranks, for tensors on the device.
  [[nodiscard]] ProcessGroup& all() noexcept { return *all_; }
  // All ranks, for tensors on the CPU: flags, sizes, hashes.
  [[nodiscard]] ProcessGroup& host() noexcept { return *host_; }
  // Of these ranks of the world, in this order, for tensors on the device: collective over them, not called by others.
  // The name is the same on all of them and of no other group.
  [[nodiscard]] std::unique_ptr<ProcessGroup> make_group(const std::string& name, std::span<const int> ranks);

  // All ranks once more, for tensors on the CPU: for another thread than host()'s. Collective.
  [[nodiscard]] std::unique_ptr<ProcessGroup> make_host_group(const std::string& name);

  // The strings of all ranks, by rank. Collective; at most 1 MiB each. `what` is for messages.
  [[nodiscard]] std::vector<std::string> exchange(const std::string& what, std::string_view text);
  // Collective: throws bad_config on every rank, with the lines that differ, unless all ranks give the same text.
  void require_equal(const std::string& what, std::string_view text);

  // Null for a world of one and a planned one.
  [[nodiscard]] Store* store() noexcept { return store_.get(); }
  // Prefix of all keys of this attempt.
  [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }

 private:
  World(Environment environment, Device device, const GroupOptions& options);
  // Checks that the ranks fit together, begins to watch them, and waits until all are there.
  void meet();
  // A rank's own description, once it is there; nothing when the time is over. Throws CommunicationError when a rank
  // ends, bad_config where ranks have not met yet and a process that may be this rank was refused for its token.
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
