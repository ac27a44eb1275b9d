#include "distributed/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "core/system/log.h"
#include "distributed/process_group.h"

namespace quench::distributed {
namespace {

using std::chrono::milliseconds;

constexpr auto kLook = std::chrono::seconds(60);  // time of one store request
constexpr auto kSlice = milliseconds(200);        // alarm polling
constexpr const char* kEnded = "ended";
constexpr const char* kLate = "late";
constexpr const char* kOver = "over";

Json alarm(const char* kind, int rank, const std::string& text) {
  Json json = Json::object();
  json.set("kind", kind);
  json.set("rank", rank);
  json.set("text", text.substr(0, 4096));
  return json;
}

std::string state_key(const std::string& prefix, int rank) {
  return fmt::format("{}state/{}", prefix, rank);
}

// Progress of a rank in a group.
struct Progress {
  std::uint64_t collectives = 0;  // enqueued
  std::uint64_t finished = 0;
  std::string latest;   // empty: none
  std::string pending;  // oldest unfinished; empty: none
};

Progress read_progress(const Json& json) {
  return {static_cast<std::uint64_t>(json.at("collectives").as_int()),
          static_cast<std::uint64_t>(json.at("finished").as_int()), json.at("latest").as_string(),
          json.at("pending").as_string()};
}

Json to_json(const CollectiveLog& log) {
  Json json = Json::object();
  json.set("collectives", static_cast<std::int64_t>(log.collectives()));
  json.set("finished", static_cast<std::int64_t>(log.finished_collectives()));
  const auto latest = log.latest_enqueued(), pending = log.oldest_unfinished();
  json.set("latest", latest ? latest->describe() : std::string());
  json.set("pending", pending ? pending->describe() : std::string());
  return json;
}

// In another group; empty: none.
std::string waiting_elsewhere(const Json& state, const std::string& group) {
  for (const auto& [name, json] : state.as_object()) {
    if (name == group) continue;
    const Progress other = read_progress(json);
    if (!other.pending.empty()) return fmt::format("; it waits in group '{}' for {}", name, other.pending);
  }
  return {};
}

}  // namespace

Watchdog::Watchdog(std::unique_ptr<Store> store, std::string prefix, int rank, int size, const WatchdogOptions& options)
    : store_(std::move(store)),
      prefix_(std::move(prefix)),
      rank_(rank),
      options_(options),
      members_(static_cast<std::size_t>(size), "somewhere"),
      thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  stop();
}

std::string Watchdog::ended(int rank, const std::string& what) {
  return alarm(kEnded, rank, what).dump();
}

std::string Watchdog::over() {
  return alarm(kOver, -1, "").dump();
}

void Watchdog::set_members(std::vector<std::string> members) {
  const std::scoped_lock lock(mutex_);
  members_ = std::move(members);
}

void Watchdog::add(ProcessGroup& group) {
  const std::scoped_lock lock(mutex_);
  groups_.push_back(&group);
}

void Watchdog::remove(ProcessGroup& group) noexcept {
  const std::scoped_lock lock(mutex_);
  std::erase(groups_, &group);
}

void Watchdog::stop() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  store_->interrupt();
  if (thread_.joinable()) thread_.join();
}

bool Watchdog::pause(milliseconds time) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, time, [this] { return stopping_; });
}

void Watchdog::check() const {
  const std::scoped_lock lock(mutex_);
  if (!lost_.empty()) throw CommunicationError(lost_);
}

void Watchdog::run() {
  const auto stopped = [this] {
    const std::scoped_lock lock(mutex_);
    return stopping_;
  };
  try {
    while (!stopped())
      if (const std::optional<std::string> text = store_->wait(key(prefix_), kLook)) return handle(Json::parse(*text));
  } catch (const std::exception& error) {
    if (stopped()) return;
    handle(alarm(kEnded, -1,
                 fmt::format("the job's store is lost: the process that serves it has ended, or the network to it ({})",
                             error.what())));
  }
}

void Watchdog::handle(const Json& alarm) {
  const std::string kind = alarm.at("kind").as_string(), text = alarm.at("text").as_string();
  if (kind == kOver) return;
  if (kind == kLate) {
    const std::string diagnosis = diagnose(alarm);
    {
      const std::scoped_lock lock(mutex_);
      diagnosis_ = diagnosis;
    }
    changed_.notify_all();
    abort_groups(AbortCause::late, text + diagnosis);
  } else {
    {
      const std::scoped_lock lock(mutex_);
      lost_ = text;
    }
    if (!pause(options_.settle)) return;
    (void)write_state();
    abort_groups(AbortCause::lost, text);
  }
  if (options_.end_process) end_process_in_time();
}

Json Watchdog::write_state() {
  Json state = Json::object();
  const std::scoped_lock lock(mutex_);
  for (ProcessGroup* group : groups_) {
    group->poll();
    write_collective_log(group->log(), group->name(), group->rank());
    state.set(group->name(), to_json(group->log()));
  }
  return state;
}

std::string Watchdog::diagnose(const Json& alarm) {
  const std::string group = alarm.at("group").as_string();
  const auto number = static_cast<std::uint64_t>(alarm.at("collective").as_int());
  const std::vector<std::string> members = [this] {
    const std::scoped_lock lock(mutex_);
    return members_;
  }();
  std::vector<int> silent, unfinished;
  std::string late;
  try {
    store_->set(state_key(prefix_, rank_), write_state().dump());
    const Deadline deadline = Clock::now() + options_.answer;
    for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
      const auto text = store_->wait(state_key(prefix_, rank), std::max(left, milliseconds(1)));
      if (!text) {
        silent.push_back(rank);
        continue;
      }
      const Json state = Json::parse(*text);
      const Json* found = state.find(group);
      if (found == nullptr || number == 0) continue;
      const Progress progress = read_progress(*found);
      if (progress.collectives < number)
        late += fmt::format("; rank {} ({}) has not come to it: {}{}", rank, members[static_cast<std::size_t>(rank)],
                            progress.latest.empty() ? "it has done nothing in this group"
                                                    : "its last operation there was " + progress.latest,
                            waiting_elsewhere(state, group));
      else if (progress.finished < number)
        unfinished.push_back(rank);
    }
  } catch (const std::exception& error) {
    return fmt::format("; the ranks cannot be asked: {}", error.what());
  }
  for (const int rank : silent)
    late += fmt::format("; rank {} ({}) does not answer at all: it is stopped, or its machine is gone", rank,
                        members[static_cast<std::size_t>(rank)]);
  if (!late.empty() || number == 0) return late;
  return fmt::format(
      "; all ranks have come to it, and it is not done on rank {}: the network between them, or a device, "
      "does not move",
      fmt::join(unfinished, ", "));
}

void Watchdog::abort_groups(AbortCause cause, const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  for (ProcessGroup* group : groups_) group->abort(cause, reason);
}

void Watchdog::end_process_in_time() {
  if (!pause(options_.ending)) return;
  std::fprintf(stderr, "error: rank %d hangs: it has not ended within %lld s of the end of the others\n", rank_,
               static_cast<long long>(options_.ending.count() / 1000));
  ::_exit(kTimeoutStatus);
}

std::string Watchdog::report_late(const ProcessGroup& group, std::uint64_t collective, const std::string& message) {
  try {
    Json json = alarm(kLate, rank_, message);
    json.set("group", group.name());
    json.set("collective", static_cast<std::int64_t>(collective));
    const Json first = Json::parse(store_->connect_again()->set_if_absent(key(prefix_), json.dump()));
    // Another rank may have reported another operation first.
    if (first.at("kind").as_string() != kLate || first.at("group") != json.at("group") ||
        first.at("collective") != json.at("collective"))
      return message;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 2 * options_.answer, [this] { return stopping_ || diagnosis_; });
    if (diagnosis_ && message.find(*diagnosis_) == std::string::npos) return message + *diagnosis_;
  } catch (const std::exception& error) {
    QUENCH_LOG_DEBUG("the other ranks cannot be told: {}", error.what());
  }
  return message;
}

void Watchdog::give_up(const std::string& reason) noexcept {
  try {
    (void)store_->connect_again()->set_if_absent(key(prefix_), ended(rank_, reason));
  } catch (const std::exception& error) {
    QUENCH_LOG_DEBUG("the other ranks cannot be told: {}", error.what());
  }
}

std::optional<std::string> wait_watched(Store& store, const std::string& key, milliseconds timeout,
                                        const Watchdog* watchdog) {
  if (watchdog == nullptr) return store.wait(key, timeout);
  const Deadline deadline = Clock::now() + timeout;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (std::optional<std::string> value = store.wait(key, std::clamp(left, milliseconds(0), kSlice))) return value;
    watchdog->check();
    if (left <= milliseconds(0)) return std::nullopt;
  }
}

}  // namespace quench::distributed
