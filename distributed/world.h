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
  // Collective. Throws after options.join_timeout, naming the missing ranks. Rank 0 serves the store unless the
  // launcher does. `device`: CPU or this rank's GPU.
  [[nodiscard]] static std::unique_ptr<World> join(const Environment& environment, Device device,
                                                   const GroupOptions& options = {});
  // Rank 0 of 1, no communication.
  [[nodiscard]] static std::unique_ptr<World> alone(Device device);
  // On the meta device.
  [[nodiscard]] static std::unique_ptr<World> planned(int rank, int size);
  // Rank 0, if it serves the store, waits with a time limit for the others. Stack unwinding notifies the other ranks of
  // a failure.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] int rank() const noexcept { return environment_.rank; }
  [[nodiscard]] int size() const noexcept { return environment_.world_size; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] const Environment& environment() const noexcept { return environment_; }

  // Device tensors.
  [[nodiscard]] ProcessGroup& all() noexcept { return *all_; }
  // CPU tensors: flags, sizes, hashes.
  [[nodiscard]] ProcessGroup& host() noexcept { return *host_; }
  // Device group of these world ranks, in this order. Collective over them only; the name is equal on all and unique.
  [[nodiscard]] std::unique_ptr<ProcessGroup> make_group(const std::string& name, std::span<const int> ranks);

  // CPU group of all ranks, for another thread than host()'s. Collective.
  [[nodiscard]] std::unique_ptr<ProcessGroup> make_host_group(const std::string& name);

  // All-gather of strings of at most 1 MiB, by rank. Collective.
  [[nodiscard]] std::vector<std::string> exchange(const std::string& what, std::string_view text);
  // Collective: throws bad_config with the differing lines unless all ranks pass the same text.
  void require_equal(const std::string& what, std::string_view text);

  // Null for one rank and on the meta device.
  [[nodiscard]] Store* store() noexcept { return store_.get(); }
  // Key prefix of this attempt and run.
  [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }

 private:
  World(Environment environment, Device device, const GroupOptions& options);
  // Connects to the store. After an earlier run of these ranks in the same launch, waits until all of them have left
  // it.
  void connect(const Endpoint& endpoint, const std::string& secret);
  // Checks consistency, starts the watchdog, waits for all ranks.
  void meet();
  // Value of a rank under `keys`; nothing on a timeout. Throws CommunicationError on a lost rank; failed before the
  // first meeting if a rank's process has ended without a value.
  [[nodiscard]] std::optional<std::string> wait_for_rank(int rank, const std::string& keys,
                                                         std::chrono::milliseconds timeout);
  [[nodiscard]] std::unique_ptr<ProcessGroup> watched(std::unique_ptr<ProcessGroup> group) const;

  Environment environment_;
  Device device_;
  GroupOptions options_;
  std::string prefix_;  // without the count of restarts in a store of rank 0, which is new with each
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
