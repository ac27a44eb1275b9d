#include "distributed/collective_log.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/system/file.h"
#include "core/system/log.h"

namespace quench::distributed {
namespace {

double seconds(CollectiveLog::Time time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

}  // namespace

std::string CollectiveLog::Entry::describe() const {
  return describe_collective(kind, op, sequence, label, elements, dtype);
}

void CollectiveLog::enqueued(const Collective& collective) {
  const std::scoped_lock lock(mutex_);
  Entry& entry = at(collective.sequence);
  entry.sequence = collective.sequence;
  entry.kind = collective.kind;
  entry.op = collective.op;
  entry.dtype = collective.payload().defined() ? collective.payload().dtype() : DType::u8;
  entry.elements = collective.payload().defined() ? collective.payload().numel() : 0;
  const bool passes = collective.kind == CollectiveKind::send || collective.kind == CollectiveKind::receive;
  entry.collective = passes ? 0 : ++collectives_;
  entry.peer = passes ? collective.peer : -1;
  entry.label = collective.label;
  entry.enqueued = Clock::now();
  entry.started.reset();
  entry.finished.reset();
  last_enqueued_ = collective.sequence;
}

void CollectiveLog::started(std::uint64_t sequence) {
  const std::scoped_lock lock(mutex_);
  if (Entry& entry = at(sequence); entry.sequence == sequence) entry.started = Clock::now();
}

void CollectiveLog::finished(std::uint64_t sequence) {
  const std::scoped_lock lock(mutex_);
  if (Entry& entry = at(sequence); entry.sequence == sequence) entry.finished = Clock::now();
  last_finished_ = std::max(last_finished_, sequence);
}

std::optional<CollectiveLog::Entry> CollectiveLog::oldest_unfinished() const {
  const std::scoped_lock lock(mutex_);
  if (last_finished_ >= last_enqueued_) return std::nullopt;
  const std::uint64_t oldest_kept = last_enqueued_ < entries_.size() ? 1 : last_enqueued_ - entries_.size() + 1;
  return at(std::max(last_finished_ + 1, oldest_kept));
}

std::optional<CollectiveLog::Entry> CollectiveLog::latest_enqueued() const {
  const std::scoped_lock lock(mutex_);
  if (last_enqueued_ == 0) return std::nullopt;
  return at(last_enqueued_);
}

std::optional<CollectiveLog::Entry> CollectiveLog::collective(std::uint64_t number) const {
  const std::scoped_lock lock(mutex_);
  for (const Entry& entry : entries_)
    if (number != 0 && entry.collective == number) return entry;
  return std::nullopt;
}

std::uint64_t CollectiveLog::collectives() const {
  const std::scoped_lock lock(mutex_);
  return collectives_;
}

std::uint64_t CollectiveLog::finished_collectives() const {
  const std::scoped_lock lock(mutex_);
  std::uint64_t unfinished = 0;
  for (const Entry& entry : entries_) unfinished += entry.collective != 0 && entry.sequence > last_finished_ ? 1 : 0;
  return collectives_ - unfinished;
}

std::uint64_t CollectiveLog::last_enqueued() const {
  const std::scoped_lock lock(mutex_);
  return last_enqueued_;
}

std::uint64_t CollectiveLog::last_finished() const {
  const std::scoped_lock lock(mutex_);
  return last_finished_;
}

std::vector<CollectiveLog::Entry> CollectiveLog::entries() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Entry> result;
  for (const Entry& entry : entries_)
    if (entry.sequence != 0) result.push_back(entry);
  std::sort(result.begin(), result.end(), [](const Entry& a, const Entry& b) { return a.sequence < b.sequence; });
  return result;
}

Json CollectiveLog::to_json() const {
  Json list = Json::array();
  for (const Entry& entry : entries()) {
    Json row = Json::object();
    row.set("sequence", static_cast<std::int64_t>(entry.sequence));
    row.set("op", std::string(to_string(entry.kind)));
    row.set("label", entry.label);
    row.set("dtype", std::string(quench::to_string(entry.dtype)));
    row.set("elements", entry.elements);
    row.set("bytes", entry.elements * bit_width(entry.dtype) / 8);
    if (entry.peer >= 0) row.set("peer", std::int64_t{entry.peer});
    row.set("enqueued", seconds(entry.enqueued));
    if (entry.started) row.set("started", seconds(*entry.started));
    if (entry.finished) row.set("finished", seconds(*entry.finished));
    list.push_back(std::move(row));
  }
  return list;
}

void write_collective_log(const CollectiveLog& log, std::string_view group, int rank) noexcept {
  const char* error_file = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (error_file == nullptr || *error_file == '\0') return;
  try {
    const std::filesystem::path path =
        std::filesystem::path(error_file).parent_path() / fmt::format("collectives-{}-{}.json", group, rank);
    write_file_atomically(path, log.to_json().dump(1));
    QUENCH_LOG_ERROR("the latest operations of group '{}' are in {}", group, path.string());
  } catch (const std::exception&) {
    // the failure's own message takes precedence
  }
}

}  // namespace quench::distributed
