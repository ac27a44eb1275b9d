#pragma once
// Rendezvous of a job's nodes, failure propagation and joint exit.
//
// A round is one attempt of all nodes; a node's number in it determines its ranks. Keys of round r:
// rdzv/r/node/<number> (description), rdzv/r/failed (first failure; the last will of each connection: launcher lost),
// rdzv/r/sign/<number> (heartbeat), rdzv/r/done/<number>.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "distributed/launcher/failure.h"
#include "distributed/launcher/launch_options.h"
#include "distributed/store/server.h"
#include "distributed/store/store.h"

namespace quench::distributed {

struct Round {
  int number = 0;  // earlier starts of the job
  int node = 0;
  int nodes = 1;
  int first_rank = 0;
  int world_size = 0;
  std::string master_host;  // address of rank 0
  int master_port = 0;      // free there when queried; for the workers' own store
};

class Rendezvous {
 public:
  // Serves the store if the endpoint is on this machine and unserved, now or in join(): a port may be held by another
  // process for a moment, and of two listen calls at the same instant Linux may refuse both. Throws bad_config for a
  // taken port where it alone may serve (node rank 0, one node).
  explicit Rendezvous(const LaunchOptions& options);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Connects on the first call, then waits for all nodes. Throws failed, naming the present nodes, on a timeout;
  // bad_config for inconsistent nodes. Nothing if `stopped` (polled) returns true.
  [[nodiscard]] std::optional<Round> join(int least_round, const std::function<bool()>& stopped);

  // A rank's process has ended with status 0: ranks that wait for it to come give up.
  void tell_ended(const Round& round, int rank) noexcept;
  // Returns the round's first failure.
  Failure report(const Round& round, const Failure& own);
  // Calls `failed` once, on a thread: node failure, a launcher's first heartbeat later than the join timeout, or loss
  // of the store. Active until the next call or destruction.
  void watch(const Round& round, std::function<void(const Failure&)> failed);
  void stop_watching();
  // After a failure: the process that serves the store waits, with a time limit, until the other nodes have read it.
  void leave(const Round& round);
  // After success of this node's workers: waits for the other nodes. Returns another node's failure, including a
  // launcher without a heartbeat for the join timeout; nothing if `stopped` returns true.
  [[nodiscard]] std::optional<Failure> finish(const Round& round, const std::function<bool()>& stopped);

  [[nodiscard]] std::string store_endpoint() const { return endpoint_.to_string(); }

 private:
  // Throws bad_config if it may serve and the port is taken.
  void serve();
  [[nodiscard]] bool connect(Deadline deadline, const std::function<bool()>& stopped);
  [[nodiscard]] std::optional<Round> join_before(Deadline deadline, int least_round,
                                                 const std::function<bool()>& stopped);
  // Nothing if all are taken.
  [[nodiscard]] std::optional<int> take_number(const std::string& prefix, const std::string& own);
  // Descriptions by node number; nothing if the round has failed.
  [[nodiscard]] std::optional<std::vector<Json>> gather_nodes(const std::string& prefix, Deadline deadline,
                                                              const std::function<bool()>& stopped);
  // Nothing if the round has failed or when stopped.
  [[nodiscard]] std::optional<Round> make_round(int number, int node, const std::vector<Json>& nodes, Deadline deadline,
                                                const std::function<bool()>& stopped);

  const LaunchOptions& options_;
  Endpoint endpoint_;
  bool may_serve_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<Store> store_;
  std::thread watcher_;
  std::shared_ptr<std::atomic<bool>> watching_;
};

}  // namespace quench::distributed
