#pragma once
// How the launchers of a job's nodes meet, learn of each other's failures, and end together.
//
// A round is one attempt of all nodes. In a round every node has a number, and ranks follow the numbers. Keys of round
// r: rdzv/r/node/<number> (what a node says of itself), rdzv/r/failed (the first failure of a node; the will of its
// connection says that the launcher itself is gone), rdzv/r/sign/<number> (signs of life), rdzv/r/done/<number>.

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
  int number = 0;  // how often the job was started before
  int node = 0;
  int nodes = 1;
  int first_rank = 0;
  int world_size = 0;
  std::string master_host;  // of rank 0's node
  int master_port = 0;      // free there when it was asked for; the workers' own
};

class Rendezvous {
 public:
  // Serves the job's store where the endpoint is of this machine and not served yet.
  explicit Rendezvous(const LaunchOptions& options);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Connects to the store the first time, and waits until all nodes are there. Throws failed naming who came when the
  // time is over; bad_config where nodes do not fit together. `stopped` is asked now and then; where it says yes,
  // nothing is returned.
  [[nodiscard]] std::optional<Round> join(int least_round, const std::function<bool()>& stopped);

  // Tells the other nodes; the first failure of a round wins. Returns that.
  Failure report(const Round& round, const Failure& own);
  // Calls `failed` once, on a thread, when a node of the round fails, when one's launcher gives no first sign of life
  // within the join timeout, and when the store is lost; until the next call or the end.
  void watch(const Round& round, std::function<void(const Failure&)> failed);
  void stop_watching();
  // Exit after a failure: the node that serves the store stays until the others have read it, or for a limited time.
  void leave(const Round& round);
  // This node's workers have all ended well: waits for the others. Nothing, or the failure of another: its own, or that
  // its launcher has given no sign of life for the join timeout.
  [[nodiscard]] std::optional<Failure> finish(const Round& round, const std::function<bool()>& stopped);

  [[nodiscard]] std::string store_endpoint() const { return endpoint_.to_string(); }

 private:
  // False when stopped.
  [[nodiscard]] bool connect(Deadline deadline, const std::function<bool()>& stopped);
  [[nodiscard]] std::optional<Round> join_before(Deadline deadline, int least_round,
                                                 const std::function<bool()>& stopped);
  // The node's number in the round with this prefix; nothing where all are taken already.
  [[nodiscard]] std::optional<int> take_number(const std::string& prefix, const std::string& own);
  // What the nodes of a round say of themselves, by number; nothing where the round has failed meanwhile.
  [[nodiscard]] std::optional<std::vector<Json>> gather_nodes(const std::string& prefix, Deadline deadline,
                                                              const std::function<bool()>& stopped);
  // Nothing where the round has failed meanwhile, or when stopped.
  [[nodiscard]] std::optional<Round> make_round(int number, int node, const std::vector<Json>& nodes, Deadline deadline,
                                                const std::function<bool()>& stopped);

  const LaunchOptions& options_;
  Endpoint endpoint_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<Store> store_;
  std::thread watcher_;
  std::shared_ptr<std::atomic<bool>> watching_;
};

}  // namespace quench::distributed
