#include "data/formats/validation_cache.h"

#include <ctime>

#include "core/json/json.h"
#include "core/system/file.h"
#include "core/system/log.h"

namespace quench {
namespace {

constexpr std::size_t kMaxRecords = 100'000;
constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;

std::string key_of(const BinaryFile& file) {
  const struct stat& s = file.status();
  return fmt::format("{}-{}-{}-{}.{}-{}.{}", s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec,
                     s.st_ctim.tv_sec, s.st_ctim.tv_nsec);
}

// A later change would alter the timestamps: their resolution (milliseconds, or seconds on some file systems) has
// passed since the last.
bool is_settled(const BinaryFile& file) {
  const struct stat& s = file.status();
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const bool coarse = s.st_mtim.tv_nsec == 0 && s.st_ctim.tv_nsec == 0;
  const auto seconds = [](const timespec& time) {
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  return seconds(now) - seconds(s.st_ctim) > (coarse ? 2.5 : 0.1);
}

}  // namespace

ValidationCache::ValidationCache(std::filesystem::path memory) : memory_(std::move(memory)) {
  std::error_code ignored;
  if (memory_.empty() || !std::filesystem::exists(memory_, ignored)) return;
  try {
    const Json json = Json::parse_file(memory_, {.max_bytes = kMaxBytes});
    for (const auto& [key, entry] : json.at("files").as_object()) {
      Record record;
      if (const Json* content = entry.find("content"))
        record.content = {content->at("bytes").as_uint(), content->at("xxh3_128").as_string(),
                          content->at("sampled").as_bool()};
      if (const Json* tokens = entry.find("tokens"))
        record.tokens = {tokens->at("format").as_string(), tokens->at("id_bound").as_uint()};
      records_[key] = std::move(record);
    }
  } catch (const Error& error) {
    QUENCH_LOG_WARN("{} is not used: {}", memory_.string(), error.what());
    records_.clear();
  }
}

ContentHash ValidationCache::content(const BinaryFile& file) {
  const auto known = records_.find(key_of(file));
  if (known != records_.end() && known->second.content) return *known->second.content;
  Record record = known != records_.end() ? known->second : Record();
  record.content = hash_content(file);
  remember(file, record);
  return *record.content;
}

std::optional<ValidationCache::Tokens> ValidationCache::tokens(const BinaryFile& file) const {
  const auto known = records_.find(key_of(file));
  return known != records_.end() ? known->second.tokens : std::nullopt;
}

void ValidationCache::set_tokens(const BinaryFile& file, Tokens tokens) {
  const auto known = records_.find(key_of(file));
  Record record = known != records_.end() ? known->second : Record();
  record.tokens = std::move(tokens);
  remember(file, std::move(record));
}

void ValidationCache::remember(const BinaryFile& file, Record record) {
  if (!is_settled(file)) return;
  records_[key_of(file)] = std::move(record);
  changed_ = true;
}

void ValidationCache::save() {
  if (memory_.empty() || !changed_) return;
  changed_ = false;
  if (records_.size() > kMaxRecords) return;
  Json files = Json::object();
  for (const auto& [key, record] : records_) {
    Json entry = Json::object();
    if (record.content)
      entry.set("content", Json::Object{{"bytes", record.content->bytes},
                                        {"xxh3_128", record.content->xxh3_128},
                                        {"sampled", record.content->sampled}});
    if (record.tokens)
      entry.set("tokens", Json::Object{{"format", record.tokens->format}, {"id_bound", record.tokens->id_bound}});
    files.as_object().emplace_back(key, std::move(entry));
  }
  try {
    if (memory_.has_parent_path()) std::filesystem::create_directories(memory_.parent_path());
    write_file_atomically(memory_, Json(Json::Object{{"files", std::move(files)}}).dump(1) + "\n");
  } catch (const std::exception& error) {
    QUENCH_LOG_WARN("{} cannot be written, the data will be checked again at the next start: {}", memory_.string(),
                    error.what());
  }
}

}  // namespace quench
