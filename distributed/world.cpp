#include "distributed/world.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <sstream>
#include <thread>

#include "core/system/log.h"
#include "distributed/store/node_addresses.h"

namespace quench::distributed {
namespace {

constexpr auto kLeaveTime = std::chrono::seconds(10);
constexpr auto kNoticeTime = std::chrono::seconds(3);
constexpr int kConnectionsPerRank = 4;
constexpr int kLeastPerRank = 2;  // store connections per rank, at least
constexpr int kOwnFiles = 8;
constexpr std::size_t kMaxDifferences = 10;
constexpr auto kReconnectPause = std::chrono::milliseconds(100);
constexpr auto kEndedPoll = std::chrono::milliseconds(500);

// At most kMaxDifferences lines.
std::string difference(std::string_view a, std::string_view b) {
  std::istringstream left{std::string(a)}, right{std::string(b)};
  std::string result, x, y;
  std::size_t count = 0;
  while (true) {
    const bool has_x = static_cast<bool>(std::getline(left, x)), has_y = static_cast<bool>(std::getline(right, y));
    if (!has_x && !has_y) return result;
    if (!has_x) x.clear();
    if (!has_y) y.clear();
    if (x == y) continue;
    if (++count > kMaxDifferences) return result + "\n  ...";
    result += fmt::format("\n  - {}\n  + {}", x, y);
  }
}

}  // namespace

World::World(Environment environment, Device device, const GroupOptions& options)
    : environment_(std::move(environment)),
      device_(device),
      options_(options),
      prefix_(fmt::format("run/{}/", environment_.store.empty() ? 0 : environment_.restart)) {}

std::unique_ptr<World> World::alone(Device device) {
  auto world = std::unique_ptr<World>(new World({}, device, {}));
  world->all_ = single_group("all", device);
  world->host_ = single_group("host", {});
  return world;
}

std::unique_ptr<World> World::planned(int rank, int size) {
  Environment environment;
  environment.rank = environment.local_rank = rank;
  environment.world_size = environment.local_world_size = size;
  auto world = std::unique_ptr<World>(new World(std::move(environment), Device{DeviceType::meta}, {}));
  world->all_ = meta_group("all", rank, size);
  world->host_ = single_group("host", {});
  return world;
}

std::unique_ptr<World> World::join(const Environment& environment, Device device, const GroupOptions& options) {
  if (!environment.is_distributed()) return alone(device);
  auto world = std::unique_ptr<World>(new World(environment, device, options));
  const bool several_nodes = environment.local_world_size < environment.world_size;
  world->options_.several_nodes = several_nodes;
  const std::string secret = store_secret(environment.token, environment.job);
  Endpoint endpoint{environment.master_host, environment.master_port};
  if (!environment.store.empty()) {
    endpoint = parse_endpoint(environment.store, 0, "QUENCH_STORE");
  } else if (environment.rank == 0) {
    require_descriptors(kLeastPerRank * environment.world_size + kOwnFiles, "rank 0, which serves the store,");
    const Endpoint place = several_nodes ? listening_place(endpoint) : endpoint;
    world->server_ =
        std::make_unique<StoreServer>(listen_on(place), secret, kConnectionsPerRank * environment.world_size);
  }
  world->connect(endpoint, secret);
  world->meet();
  world->engine_ = make_engine(device, *world->store_, world->options_);
  if (!device.is_cpu()) world->host_engine_ = make_engine({}, *world->store_, world->options_);
  const GroupPlace all{"all", environment.rank, environment.world_size};
  world->all_ = world->watched(world->engine_->make_group(all, *world->store_, world->prefix_ + "group/all/"));
  world->host_ = world->make_host_group("host");
  return world;
}

void World::connect(const Endpoint& endpoint, const std::string& secret) {
  const Deadline deadline = Clock::now() + options_.join_timeout;
  const auto left = [&] {
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()),
                    std::chrono::milliseconds(1));
  };
  const auto has_left = [&] { return store_->try_get(fmt::format("{}left/{}", prefix_, rank())).has_value(); };
  store_ = std::make_unique<Store>(endpoint, secret, left());
  if (!environment_.store.empty()) {
    const std::string attempt = prefix_;
    for (int earlier = 1; has_left(); ++earlier) {
      QUENCH_CHECK_AS(ErrorCode::failed, store_->wait(prefix_ + "all left", left()),
                      "rank {} has left the run before this one, other ranks have not within {} s: start all ranks "
                      "equally often",
                      rank(), static_cast<double>(options_.join_timeout.count()) / 1000);
      prefix_ = fmt::format("{}{}/", attempt, earlier);
    }
    return;
  }
  // The store of an earlier run ends with its rank 0; the next one is served at the same place.
  while (!server_) {
    try {
      if (!has_left()) return;
    } catch (const Error&) {
      if (Clock::now() >= deadline) throw;
    }
    QUENCH_CHECK_AS(ErrorCode::failed, Clock::now() < deadline,
                    "rank {} has left the run before this one, rank 0 has not within {} s", rank(),
                    static_cast<double>(options_.join_timeout.count()) / 1000);
    store_.reset();
    std::this_thread::sleep_for(kReconnectPause);
    store_ = std::make_unique<Store>(endpoint, secret, left());
  }
}

void World::meet() {
  // Before engines connect, which could only report a missing rank.
  const std::string place = fmt::format("world size {}", size());
  const std::string first = store_->set_if_absent(prefix_ + "size", place);
  if (first != place) {
    const std::string reason =
        fmt::format("rank {} was started with {}, but another rank of the same job with {}", rank(), place, first);
    // Other ranks would wait for ranks that cannot arrive.
    (void)store_->set_if_absent(Watchdog::key(prefix_), Watchdog::ended(rank(), reason));
    // The store closes with its rank: the others read the reason first.
    if (server_) (void)store_->wait(prefix_ + "left", kNoticeTime);
    QUENCH_FAIL(ErrorCode::bad_config, "{}", reason);
  }
  const std::string own = fmt::format("process {} on {}", ::getpid(), host_name());
  const std::string there = store_->set_if_absent(fmt::format("{}rank/{}", prefix_, rank()), own);
  QUENCH_CHECK_AS(ErrorCode::bad_config, there == own, "rank {} exists twice: {} and {}", rank(), there, own);
  // Rank failures propagate in both directions from now on.
  store_->set_last_will(Watchdog::key(prefix_),
                        Watchdog::ended(rank(), fmt::format("rank {} ({}) has ended", rank(), own)));
  watchdog_ = std::make_shared<Watchdog>(store_->connect_again(), prefix_, rank(), size(),
                                         WatchdogOptions{.end_process = options_.end_hanging_process});
  options_.watchdog = watchdog_;
  watchdog_->set_members(exchange("start", own));
}

std::unique_ptr<ProcessGroup> World::watched(std::unique_ptr<ProcessGroup> group) const {
  group->watch(watchdog_);
  return group;
}

World::~World() {
  if (!store_) return;
  try {
    // No wait on an error: others may never reach this point.
    const bool fails = std::uncaught_exceptions() > 0;
    if (watchdog_ && !fails) store_->set_last_will(Watchdog::key(prefix_), "");
    store_->set(fmt::format("{}left/{}", prefix_, rank()), "1");
    const std::int64_t left = store_->add(prefix_ + "left", 1);
    if (left == size()) store_->set(prefix_ + "all left", "1");
    if (server_ && !fails) {
      (void)store_->wait(prefix_ + "all left", kLeaveTime);
      (void)store_->set_if_absent(Watchdog::key(prefix_), Watchdog::over());
    }
  } catch (const std::exception& error) {
    QUENCH_LOG_DEBUG("leaving the world: {}", error.what());
  }
  if (watchdog_) watchdog_->stop();
}

std::unique_ptr<ProcessGroup> World::make_group(const std::string& name, std::span<const int> ranks) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank());
  QUENCH_CHECK(own != ranks.end(), "group '{}': rank {} is not one of its {} ranks", name, rank(), ranks.size());
  const GroupPlace place{name, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size())};
  if (device_.is_meta()) return meta_group(name, place.rank, place.size);
  if (place.size == 1) return single_group(name, device_);
  return watched(engine_->make_group(place, *store_, fmt::format("{}group/{}/", prefix_, name)));
}

std::unique_ptr<ProcessGroup> World::make_host_group(const std::string& name) {
  if (!store_) return single_group(name, {});
  GroupEngine& engine = host_engine_ ? *host_engine_ : *engine_;
  return watched(engine.make_group({name, rank(), size()}, *store_, fmt::format("{}group/{}/", prefix_, name)));
}

std::optional<std::string> World::wait_for_rank(int rank, const std::string& keys, std::chrono::milliseconds timeout) {
  const std::string key = keys + std::to_string(rank);
  // Only a launcher sees the end of a process that has not come; later ends are alarms.
  if (environment_.store.empty() || all_) return wait_watched(*store_, key, timeout, watchdog_.get());
  const Deadline deadline = Clock::now() + timeout;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    std::optional<std::string> value =
        wait_watched(*store_, key, std::clamp<std::chrono::milliseconds>(left, {}, kEndedPoll), watchdog_.get());
    if (value || left <= std::chrono::milliseconds(0)) return value;
    const std::optional<std::string> ended = store_->try_get(ended_rank_key(environment_.restart));
    if (!ended || store_->try_get(keys + *ended)) continue;
    const std::string reason = fmt::format("rank {} has ended with status 0 before all ranks had met", *ended);
    // Ranks that look later name this rank, not the one that fails here.
    (void)store_->set_if_absent(Watchdog::key(prefix_), Watchdog::ended(this->rank(), reason));
    QUENCH_FAIL(ErrorCode::failed, "{}", reason);
  }
}

std::vector<std::string> World::exchange(const std::string& what, std::string_view text) {
  std::vector<std::string> result(static_cast<std::size_t>(size()), std::string(text));
  if (!store_) return result;
  const std::string key = fmt::format("{}exchange/{}/", prefix_, exchanges_++);
  store_->set(key + std::to_string(rank()), text);
  const Deadline deadline = Clock::now() + options_.join_timeout;
  std::vector<int> missing;
  for (int i = 0; i < size(); ++i) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    std::optional<std::string> value = wait_for_rank(i, key, std::max(left, std::chrono::milliseconds(1)));
    if (value)
      result[static_cast<std::size_t>(i)] = *std::move(value);
    else
      missing.push_back(i);
  }
  if (!missing.empty()) {
    std::string reason =
        fmt::format("{}: {} of {} ranks did not come within {} s: rank {}", what, missing.size(), size(),
                    static_cast<double>(options_.join_timeout.count()) / 1000, fmt::join(missing, ", "));
    if (const std::optional<std::string> refused = all_ ? std::nullopt : store_->try_get(kOtherTokensKey))
      reason += fmt::format("; {}: give all ranks the same QUENCH_RDZV_TOKEN or QUENCH_RDZV_TOKEN_FILE", *refused);
    // Same reason for ranks still within their timeout.
    if (watchdog_) store_->set_last_will(Watchdog::key(prefix_), Watchdog::ended(rank(), reason));
    QUENCH_FAIL(ErrorCode::failed, "{}", reason);
  }
  return result;
}

void World::require_equal(const std::string& what, std::string_view text) {
  const std::vector<std::string> texts = exchange(what, text);
  for (std::size_t i = 1; i < texts.size(); ++i)
    QUENCH_CHECK_AS(ErrorCode::bad_config, texts[i] == texts[0], "rank {} has another {} than rank 0:{}", i, what,
                    difference(texts[0], texts[i]));
}

}  // namespace quench::distributed
