#include "data/text/text_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/temporary.h"
#include "data/files/text_input.h"
#include "data/formats/binary_file.h"
#include "data/formats/content_hash.h"
#include "data/formats/shard_format.h"
#include "data/formats/token_stream.h"
#include "data/text/data_files.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// To destruction or process exit.
class FileLock {
 public:
  explicit FileLock(const fs::path& path) : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    QUENCH_CHECK_AS(ErrorCode::io, file_ >= 0, "cannot create the lock {}: {}", path.string(), errno_text(errno));
    if (::flock(file_, LOCK_EX | LOCK_NB) == 0) return;
    int error = errno;
    if (error == EWOULDBLOCK) {
      QUENCH_LOG_INFO("another process is tokenizing the same text; waiting for {}", path.string());
      while (::flock(file_, LOCK_EX) != 0) {
        error = errno;
        if (error != EINTR) break;
      }
      if (error == EWOULDBLOCK || error == EINTR) return;
    }
    ::close(file_);
    QUENCH_FAIL(ErrorCode::io, "cannot lock {}: {}", path.string(), errno_text(error));
  }
  ~FileLock() { ::close(file_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_;
};

// Empty if incomplete. Throws corrupt, or not_found, for a damaged entry: what is no summary, shards that are absent or
// shorter than their tokens.
std::vector<fs::path> cached_shards(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / "dataset.json", ignored)) return {};
  const Json summary = Json::parse_file(folder / "dataset.json");
  std::vector<fs::path> shards;
  for (const Json& shard : summary.at("train").at("shards").as_array()) {
    const fs::path& file = shards.emplace_back(folder / fs::path(shard.at("file").as_string()).filename());
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(file, error);
    const bool is_absent = error == std::errc::no_such_file_or_directory;
    QUENCH_CHECK_AS(is_absent ? ErrorCode::not_found : ErrorCode::io, !error, "{}: {}", file.string(), error.message());
    QUENCH_CHECK_AS(ErrorCode::corrupt, bytes >= 2 * shard.at("tokens").as_uint(), "{} is cut off", file.string());
  }
  return shards;
}

// Removes a damaged entry, which is recomputed then.
std::vector<fs::path> sound_shards(const fs::path& folder) {
  try {
    return cached_shards(folder);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::not_found) throw;
    QUENCH_LOG_WARN("{}: the tokenized text is damaged and is recomputed", error.what());
    fs::remove_all(folder);
    return {};
  }
}

std::vector<std::string> stored_warnings(const fs::path& folder) {
  std::vector<std::string> warnings;
  const Json summary = Json::parse_file(folder / "dataset.json");
  if (const Json* stored = summary.find("warnings"); stored != nullptr)
    for (const Json& warning : stored->as_array()) warnings.push_back(warning.as_string());
  return warnings;
}

}  // namespace

std::vector<fs::path> tokenize_cached(const std::vector<std::string>& inputs, const Tokenizer& tokenizer,
                                      const TextCacheOptions& options) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, !options.folder.empty(), "no cache folder for tokenized text");
  Hash128 key;
  key.add(fmt::format("shard version {}", kShardVersion));
  key.add(fingerprint_text(tokenizer));
  ReaderOptions reader = options.reader;
  resolve_chats(reader, tokenizer);
  const std::vector<fs::path> paths = expand_data_files(inputs);
  key.add(describe_options(reader, options.encoder, paths).dump());
  for (const fs::path& path : paths) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, path != kStandardInput,
                    "training reads its data more than once, which standard input does not allow; make shards of it "
                    "with `quench tokenize --input -`");
    // Automatic: by extension.
    key.add(options.reader.format == nullptr ? text_extension(path) : std::string());
    key.add(BinaryFile(path));
  }
  fs::create_directories(options.folder);
  remove_stale_temporaries(options.folder);  // leftovers of killed processes
  const fs::path folder = options.folder / key.text();
  const FileLock lock(options.folder / (key.text() + ".lock"));
  std::vector<fs::path> shards = sound_shards(folder);
  if (!shards.empty()) {
    QUENCH_LOG_INFO("tokenized text found in {}", folder.string());
    for (const std::string& warning : stored_warnings(folder)) QUENCH_LOG_WARN("{}", warning);
    std::error_code ignored;
    fs::remove(journal_of(folder), ignored);  // journal of a process killed after completion
    return shards;
  }
  const StopPoll stop = options.watch_stop ? options.watch_stop() : StopPoll();
  const TokenizeResult result = tokenize_files(tokenizer, {.inputs = inputs,
                                                           .reader = reader,
                                                           .encoder = options.encoder,
                                                           .output = folder,
                                                           .batch_bytes = options.batch_bytes,
                                                           .progress = options.progress,
                                                           .stop = stop,
                                                           .journal = true});
  if (result.report.bad_records > 0)
    QUENCH_LOG_WARN("{} records could not be used and were skipped, the first: {}", result.report.bad_records,
                    result.report.first_bad.front());
  for (const std::string& warning : result.warnings) QUENCH_LOG_WARN("{}", warning);
  // Else the caller would lose a stop during completion.
  if (const int reason = stop ? stop() : 0; reason != 0)
    throw TokenizationStopped(reason, "the text is tokenized; the same command continues from there");
  return cached_shards(folder);
}

}  // namespace quench
