#include "train/remote/remote_upload.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "train/checkpoint/checkpoint_list.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// Open file under a name that stays valid when it is replaced or deleted.
class HeldFile {
 public:
  explicit HeldFile(const fs::path& path) : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    const int error = errno;
    QUENCH_CHECK_AS(ErrorCode::io, file_ >= 0 || error == ENOENT, "{}: {}", path.string(), errno_text(error));
  }
  ~HeldFile() {
    if (file_ >= 0) ::close(file_);
  }
  HeldFile(const HeldFile&) = delete;
  HeldFile& operator=(const HeldFile&) = delete;

  [[nodiscard]] bool exists() const noexcept { return file_ >= 0; }
  [[nodiscard]] fs::path path() const { return fmt::format("/proc/self/fd/{}", file_); }

 private:
  int file_;
};

// Empty: the folder is gone.
std::string manifest_text(const fs::path& checkpoint) {
  try {
    return read_file(checkpoint / Manifest::kFileName, Manifest::kMaxBytes);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    return {};
  }
}

// Pauses that grow, for what another rank does; a warning after a minute.
class Waiting {
 public:
  Waiting(const UploadOptions& options, std::string what) : options_(options), what_(std::move(what)) {}
  void next() {
    constexpr double kLongest = 5, kGrowth = 1.5, kWarn = 60;
    options_.pause(seconds_);
    const double before = waited_;
    waited_ += seconds_;
    seconds_ = std::min(seconds_ * kGrowth, kLongest);
    if (before < kWarn && waited_ >= kWarn)
      QUENCH_LOG_WARN("still waiting for another process to send {}; the log of its host may say why", what_);
  }

 private:
  const UploadOptions& options_;
  std::string what_;
  double seconds_ = 0.2, waited_ = 0;
};

// A manifest of another save of this step would name files that are about to be replaced. False: the folder has
// another save meanwhile.
bool await_no_other_save(RemoteStore& store, const RemoteUpload& upload, const UploadOptions& options,
                         const std::string& text) {
  if (options.rank == 0) store.client().remove(remote_name(upload.step, Manifest::kFileName));
  for (Waiting waiting(options, store.text(step_name(upload.step))); options.rank != 0 && store.saved_uuid(upload.step);
       waiting.next())
    if (manifest_text(upload.path) != text) return false;
  return true;
}

// False: the file is gone.
bool send_file(RemoteStore& store, const RemoteUpload& upload, const Manifest& manifest, const DataFileRecord& record,
               const UploadOptions& options) {
  const HeldFile file(upload.path / record.name);
  if (!file.exists()) return false;
  const auto stop = [&] {
    options.pause(0);
    return 0;
  };
  const s3::FileDigest digest = s3::digest_file(file.path(), store.part_bytes(), stop);
  if (digest.bytes != record.size) return false;
  const std::string name = remote_name(upload.step, record.name);
  if (const auto info = store.client().find(name);
      info && info->bytes == digest.bytes && info->digest() == digest.stored())
    return true;
  store.client().send(name, file.path(), digest, {{std::string(RemoteStore::kSaveKey), manifest.save_uuid}});
  return true;
}

bool has_file(RemoteStore& store, const RemoteUpload& upload, const Manifest& manifest, const DataFileRecord& record) {
  const auto info = store.client().find(remote_name(upload.step, record.name));
  if (!info || info->bytes != record.size) return false;
  const auto save = info->metadata.find(RemoteStore::kSaveKey);
  return save != info->metadata.end() && save->second == manifest.save_uuid;
}

}  // namespace

bool upload_checkpoint(RemoteStore& store, const RemoteUpload& upload, const UploadOptions& options) {
  const std::string text = manifest_text(upload.path);
  if (text.empty()) return false;
  const Manifest manifest = Manifest::parse(text, (upload.path / Manifest::kFileName).string());
  if (const auto other = store.saved_uuid(upload.step); other) {
    if (*other == manifest.save_uuid) return true;
    if (!await_no_other_save(store, upload, options, text)) return false;
  }
  const auto is_own = [&](const DataFileRecord& record) { return record.rank % options.ranks == options.rank; };
  for (const DataFileRecord& record : manifest.files)
    if (is_own(record) && !send_file(store, upload, manifest, record, options)) return false;
  if (options.rank != 0) return true;
  for (const DataFileRecord& record : manifest.files) {
    if (is_own(record)) continue;
    for (Waiting waiting(options, store.text(remote_name(upload.step, record.name)));
         !has_file(store, upload, manifest, record); waiting.next())
      if (manifest_text(upload.path) != text) return false;
  }
  store.client().remove(remote_name(upload.step, kSupersededMarker));  // marker of an abandoned checkpoint
  store.client().write(remote_name(upload.step, Manifest::kFileName), text,
                       {{std::string(RemoteStore::kSaveKey), manifest.save_uuid}});
  return true;
}

void apply_remote_retention(RemoteStore& store, const RemoteUpload& upload, const UploadOptions& options) {
  store.client().remove_interrupted("step-", [&](std::string_view name) {
    const auto step = parse_step_name(name.substr(0, name.find('/')));
    return step && *step < upload.step;
  });
  int whole = 0;
  for (const RemoteCheckpoint& checkpoint : store.list()) {
    const std::int64_t step = checkpoint.step;
    if (!checkpoint.has_manifest) {
      if (step < upload.step && !checkpoint.pinned) store.remove(checkpoint);
      continue;
    }
    if (checkpoint.superseded) continue;
    if (step != upload.step && !upload.line.keeps(step, upload.step)) {
      QUENCH_LOG_WARN("{}: superseded, since the run continues from an earlier step and now has saved step {}",
                      store.text(step_name(step)), upload.step);
      store.mark_superseded(step, upload.step);
      continue;
    }
    if (++whole <= options.keep_latest || options.keep_latest == 0 || checkpoint.pinned) continue;
    const bool is_kept = std::ranges::find(upload.kept, step) != upload.kept.end() ||
                         inspect_checkpoint(step, upload.path.parent_path() / step_name(step)).pinned;
    if (!is_kept) store.remove(checkpoint);
  }
}

}  // namespace quench
