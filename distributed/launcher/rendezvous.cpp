#include "distributed/launcher/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <exception>

#include "core/system/log.h"
#include "distributed/store/node_addresses.h"

namespace quench::distributed {
namespace {

constexpr auto kLook = std::chrono::milliseconds(200);       // polling of a waiting node
constexpr auto kTry = std::chrono::milliseconds(500);        // per connect, between checks for a stop
constexpr auto kFirstPause = std::chrono::milliseconds(50);  // doubled each time
constexpr auto kLongestPause = std::chrono::milliseconds(1'600);
constexpr auto kLeastAnswer = std::chrono::milliseconds(1'000);
constexpr std::int64_t kMostWorkers = 1 << 16;
constexpr auto kSign = std::chrono::seconds(1);  // heartbeat interval
constexpr auto kLeaveTime = std::chrono::seconds(5);
constexpr auto kSoon = std::chrono::milliseconds(1);
constexpr int kConnectionsPerWorker = 6;
constexpr int kSpareConnections = 64;

std::string round_prefix(int number) {
  return fmt::format("rdzv/{}/", number);
}

// Heartbeat: a counter.
std::string sign_key(int round, int node) {
  return fmt::format("{}sign/{}", round_prefix(round), node);
}

std::string done_key(int round, int node) {
  return fmt::format("{}done/{}", round_prefix(round), node);
}

Json parse(const std::string& text) {
  return Json::parse(text);
}

// Throws bad_config if it is not from a quench launcher.
Json parse_node(const std::string& text, int number) {
  try {
    const Json node = parse(text);
    const std::int64_t workers = node.at("workers").as_int();
    QUENCH_CHECK(workers >= 1 && workers <= kMostWorkers, "{} workers, expected 1 to {}", workers, kMostWorkers);
    (void)node.at("host").as_string();
    (void)node.at("process").as_int();
    return node;
  } catch (const Error& error) {
    QUENCH_FAIL(ErrorCode::bad_config,
                "node {} of this job is no launcher of this version of quench: what it says of itself is '{}' ({})",
                number, text.substr(0, 200), error.what());
  }
}

Failure lost_node(int node, const std::string& message) {
  Failure failure;
  failure.node = node;
  failure.host = host_name();
  failure.message = message;
  failure.time = unix_time();
  return failure;
}

Failure silent_node(int node, const LaunchOptions& options) {
  return lost_node(node, fmt::format("the launcher of node {} has come and has given no sign of life for {} s", node,
                                     static_cast<double>(options.join_timeout.count()) / 1000));
}

}  // namespace

Rendezvous::Rendezvous(const LaunchOptions& options)
    : options_(options),
      endpoint_(options.alone() ? Endpoint{"127.0.0.1", 0} : options.endpoint),
      may_serve_(options.alone() || options.node_rank == 0 ||
                 (options.node_rank < 0 && is_this_machine(options.endpoint.host))) {
  if (may_serve_ && options.nodes > 1)
    require_descriptors(2 * options.nodes * options.workers, "quench run, which serves the store,");
  try {
    serve();
  } catch (const Error&) {
    // Another local node may serve the store; the handshake detects a foreign process.
    if (options.node_rank == 0 || options.nodes == 1) throw;
  }
}

void Rendezvous::serve() {
  if (!may_serve_ || server_) return;
  const int connections = options_.nodes * options_.workers * kConnectionsPerWorker + kSpareConnections;
  server_ = std::make_unique<StoreServer>(listen_on(options_.nodes > 1 ? listening_place(endpoint_) : endpoint_),
                                          store_secret(options_.token, options_.job), connections);
  endpoint_.port = server_->port();
}

bool Rendezvous::connect(Deadline deadline, const std::function<bool()>& stopped) {
  for (auto pause = kFirstPause; !store_; pause = std::min(2 * pause, kLongestPause)) {
    try {
      store_ = std::make_unique<Store>(endpoint_, store_secret(options_.token, options_.job), kTry);
    } catch (const Error& error) {
      const bool is_over = Clock::now() >= deadline;
      // A name may become resolvable while nodes start; at the deadline, an error.
      if (is_over && error.code() == ErrorCode::not_found) QUENCH_FAIL(ErrorCode::bad_config, "{}", error.what());
      if (is_over || error.code() == ErrorCode::bad_config) throw;
      for (const Deadline again = Clock::now() + pause; Clock::now() < again; std::this_thread::sleep_for(kFirstPause))
        if (stopped()) return false;
      try {
        serve();
      } catch (const Error&) {
        // The port is still taken; the next attempt to connect says by what.
      }
    }
  }
  // Bounds the wait on a hanging store.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  store_->set_answer_time(std::clamp<std::chrono::milliseconds>(left, kLeastAnswer, kAnswerTime));
  const std::string spec = fmt::format("--nnodes {}", options_.nodes);
  const std::string first = store_->set_if_absent("rdzv/nodes", spec);
  QUENCH_CHECK_AS(ErrorCode::bad_config, first == spec, "this node was started with {}, the first one with {}", spec,
                  first);
  return true;
}

Rendezvous::~Rendezvous() {
  stop_watching();
}

std::optional<int> Rendezvous::take_number(const std::string& prefix, const std::string& own) {
  if (options_.node_rank >= 0) {
    const std::string there = store_->set_if_absent(fmt::format("{}node/{}", prefix, options_.node_rank), own);
    if (there != own) {
      const Json other = parse_node(there, options_.node_rank);
      QUENCH_FAIL(ErrorCode::bad_config, "--node-rank {} is taken by process {} on {}", options_.node_rank,
                  other.at("process").as_int(), other.at("host").as_string());
    }
    return options_.node_rank;
  }
  const auto number = static_cast<int>(store_->add(prefix + "arrived", 1)) - 1;
  if (number >= options_.nodes) return std::nullopt;
  store_->set(fmt::format("{}node/{}", prefix, number), own);
  return number;
}

std::optional<std::vector<Json>> Rendezvous::gather_nodes(const std::string& prefix, Deadline deadline,
                                                          const std::function<bool()>& stopped) {
  std::vector<Json> nodes;
  while (static_cast<int>(nodes.size()) < options_.nodes) {
    const std::optional<std::string> node = store_->wait(fmt::format("{}node/{}", prefix, nodes.size()), kLook);
    if (node) {
      nodes.push_back(parse_node(*node, static_cast<int>(nodes.size())));
      continue;
    }
    if (stopped() || store_->try_get(prefix + "failed")) return std::nullopt;
    if (Clock::now() < deadline) continue;
    std::vector<std::string> there;
    for (int i = 0; i < options_.nodes; ++i)
      if (const auto info = store_->wait(fmt::format("{}node/{}", prefix, i), kSoon))
        there.push_back(fmt::format("{} ({})", i, parse_node(*info, i).at("host").as_string()));
    const std::optional<std::string> refused = store_->try_get(kOtherTokensKey);
    QUENCH_FAIL(ErrorCode::failed, "{} of {} nodes came to {} within {} s: node {}{}", there.size(), options_.nodes,
                store_->endpoint().to_string(), static_cast<double>(options_.join_timeout.count()) / 1000,
                fmt::join(there, ", "), refused ? fmt::format("; {}: give all nodes the same token", *refused) : "");
  }
  return nodes;
}

std::optional<Round> Rendezvous::make_round(int number, int node, const std::vector<Json>& nodes, Deadline deadline,
                                            const std::function<bool()>& stopped) {
  Round round;
  round.number = number;
  round.node = node;
  round.nodes = options_.nodes;
  for (int i = 0; i < options_.nodes; ++i) {
    const auto workers = static_cast<int>(nodes[static_cast<std::size_t>(i)].at("workers").as_int());
    if (i < node) round.first_rank += workers;
    round.world_size += workers;
  }
  const std::string key = round_prefix(number) + "master";
  if (node == 0) {
    // For the workers' own library, as in torchrun. Quench workers use the launcher's store.
    int port = options_.master_port;
    const std::string address = options_.nodes > 1 ? address_for_nodes(*store_) : store_->address();
    if (port == 0) port = local_port(listen_on({address, 0}));
    store_->set(key, Endpoint{address, port}.to_string());
  }
  std::optional<std::string> address = store_->wait(key, kSoon);
  while (!address) {
    if (stopped() || store_->try_get(round_prefix(number) + "failed")) return std::nullopt;
    QUENCH_CHECK_AS(ErrorCode::failed, Clock::now() < deadline,
                    "node 0 ({}) has come to {} and does not say within {} s where its ranks are",
                    nodes.front().at("host").as_string(), store_->endpoint().to_string(),
                    static_cast<double>(options_.join_timeout.count()) / 1000);
    address = store_->wait(key, kLook);
  }
  const Endpoint master = parse_endpoint(*address, 0, "node 0's address");
  round.master_host = master.host;
  round.master_port = master.port;
  return round;
}

std::optional<Round> Rendezvous::join(int least_round, const std::function<bool()>& stopped) {
  const Deadline deadline = Clock::now() + options_.join_timeout;
  if (!connect(deadline, stopped)) return std::nullopt;
  std::optional<Round> round = join_before(deadline, least_round, stopped);
  store_->set_answer_time(kAnswerTime);
  return round;
}

std::optional<Round> Rendezvous::join_before(Deadline deadline, int least_round, const std::function<bool()>& stopped) {
  Json info = Json::object();
  info.set("host", host_name());
  info.set("process", ::getpid());
  info.set("workers", options_.workers);
  const std::string own = info.dump();
  int number = least_round;
  while (!stopped()) {
    const std::string prefix = round_prefix(number);
    if (store_->try_get(prefix + "failed")) {  // a returning node finds the failed round
      QUENCH_CHECK_AS(ErrorCode::failed, Clock::now() < deadline,
                      "no attempt of job '{}' on {} has begun within {} s: the nodes of {} attempts came and failed",
                      options_.job, store_->endpoint().to_string(),
                      static_cast<double>(options_.join_timeout.count()) / 1000, number - least_round + 1);
      ++number;
      continue;
    }
    const std::optional<int> node = take_number(prefix, own);
    if (node) {
      store_->set_last_will(prefix + "failed",
                            lost_node(*node, fmt::format("the launcher of node {} on {} (process {}) is gone", *node,
                                                         host_name(), ::getpid()))
                                .to_json()
                                .dump());
      const std::optional<std::vector<Json>> nodes = gather_nodes(prefix, deadline, stopped);
      if (nodes)
        if (std::optional<Round> round = make_round(number, *node, *nodes, deadline, stopped)) return round;
      continue;
    }
    // All numbers are taken, possibly by a lost node not yet detected.
    while (!stopped() && !store_->wait(prefix + "failed", kLook))
      QUENCH_CHECK_AS(ErrorCode::bad_config, Clock::now() < deadline,
                      "job '{}' on {} has all its {} nodes already; is --rdzv-id another job's?", options_.job,
                      store_->endpoint().to_string(), options_.nodes);
  }
  return std::nullopt;
}

void Rendezvous::tell_ended(const Round& round, int rank) noexcept {
  try {
    (void)store_->set_if_absent(ended_rank_key(round.number), std::to_string(rank));
  } catch (const std::exception& error) {
    QUENCH_LOG_DEBUG("the end of rank {} cannot be told: {}", rank, error.what());
  }
}

Failure Rendezvous::report(const Round& round, const Failure& own) {
  return Failure::from_json(parse(store_->set_if_absent(round_prefix(round.number) + "failed", own.to_json().dump())));
}

void Rendezvous::watch(const Round& round, std::function<void(const Failure&)> failed) {
  stop_watching();
  if (options_.nodes == 1) return;
  watching_ = std::make_shared<std::atomic<bool>>(true);
  watcher_ = std::thread([this, watching = watching_, round, failed = std::move(failed)] {
    try {
      const std::unique_ptr<Store> store = store_->connect_again();
      const Deadline first_signs_by = Clock::now() + options_.join_timeout;
      int heard = 0;  // nodes 0 to heard - 1 have a heartbeat or are done
      Deadline next_sign{};
      for (std::int64_t signs = 0; *watching;) {
        const std::optional<std::string> text = store->wait(round_prefix(round.number) + "failed", kLook);
        if (text) return failed(Failure::from_json(parse(*text)));
        if (Clock::now() < next_sign) continue;
        next_sign = Clock::now() + kSign;
        store->set(sign_key(round.number, round.node), std::to_string(++signs));
        while (heard < round.nodes &&
               (store->try_get(sign_key(round.number, heard)) || store->try_get(done_key(round.number, heard))))
          ++heard;
        if (heard < round.nodes && Clock::now() > first_signs_by) return failed(silent_node(heard, options_));
      }
    } catch (const Error& error) {
      if (*watching)
        failed(
            lost_node(round.node, fmt::format("the job's store is lost: the launcher that serves it has ended, or the "
                                              "network to it ({})",
                                              error.what())));
    }
  });
}

void Rendezvous::stop_watching() {
  if (!watcher_.joinable()) return;
  *watching_ = false;
  watcher_.join();
}

std::optional<Failure> Rendezvous::finish(const Round& round, const std::function<bool()>& stopped) {
  const std::string prefix = round_prefix(round.number);
  stop_watching();
  store_->set(done_key(round.number, round.node), "1");
  try {
    std::optional<std::string> last_sign;
    Deadline silent_since = Clock::now();
    for (int node = 0; node < round.nodes;) {
      if (store_->wait(done_key(round.number, node), kLook)) {
        ++node;
        last_sign.reset();
        silent_since = Clock::now();
        continue;
      }
      if (const auto text = store_->try_get(prefix + "failed")) return Failure::from_json(parse(*text));
      if (stopped()) return std::nullopt;
      if (const auto sign = store_->try_get(sign_key(round.number, node)); sign != last_sign) {
        last_sign = sign;
        silent_since = Clock::now();
      } else if (Clock::now() - silent_since > options_.join_timeout) {
        return silent_node(node, options_);
      }
    }
    // A launcher's exit is no failure from now on. The serving node waits until the others have read it.
    store_->set_last_will(prefix + "failed", "");
  } catch (const Error& error) {
    QUENCH_LOG_DEBUG("the end of the rendezvous: {}", error.what());  // other nodes have exited
  }
  leave(round);
  return std::nullopt;
}

void Rendezvous::leave(const Round& round) {
  if (round.nodes == 1) return;
  try {
    const std::string prefix = round_prefix(round.number);
    const std::int64_t gone = store_->add(prefix + "gone", 1);
    if (gone == round.nodes) store_->set(prefix + "all gone", "1");
    if (server_) (void)store_->wait(prefix + "all gone", kLeaveTime);
  } catch (const Error& error) {
    QUENCH_LOG_DEBUG("leaving the rendezvous: {}", error.what());
  }
}

}  // namespace quench::distributed
