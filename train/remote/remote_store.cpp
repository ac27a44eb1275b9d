#include "train/remote/remote_store.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/temporary.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/checkpoint_reader.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

s3::S3Settings settings_for(bool patient) {
  s3::S3Settings settings = s3::S3Settings::from_environment();
  if (!patient) settings.http.retries = 2;
  return settings;
}

const s3::S3Object* find_object(const RemoteCheckpoint& checkpoint, std::string_view name) {
  const auto found = std::ranges::find(checkpoint.objects, remote_name(checkpoint.step, name), &s3::S3Object::name);
  return found == checkpoint.objects.end() ? nullptr : &*found;
}

}  // namespace

std::string remote_name(std::int64_t step, std::string_view file) {
  return fmt::format("{}/{}", step_name(step), file);
}

RemoteStore::RemoteStore(std::string_view address, hub::StopPoll stop, bool patient)
    : RemoteStore(settings_for(patient), address, std::move(stop)) {}

RemoteStore::RemoteStore(s3::S3Settings settings, std::string_view address, hub::StopPoll stop)
    : part_bytes_(settings.part_bytes), client_(std::move(settings), s3::parse_s3_url(address), std::move(stop)) {}

void RemoteStore::probe() {
  (void)client_.list(kProbePrefix);
  const std::string name = fmt::format("{}{}-{}", kProbePrefix, ::getpid(), ::time(nullptr));
  client_.write(name, "", {});
  client_.remove(name);
}

std::vector<RemoteCheckpoint> RemoteStore::list() {
  std::map<std::int64_t, RemoteCheckpoint, std::greater<>> found;
  for (s3::S3Object& object : client_.list("step-")) {
    const std::size_t slash = object.name.find('/');
    if (slash == std::string::npos) continue;
    const auto step = parse_step_name(std::string_view(object.name).substr(0, slash));
    if (!step) continue;
    RemoteCheckpoint& checkpoint = found[*step];
    checkpoint.step = *step;
    const std::string_view file = std::string_view(object.name).substr(slash + 1);
    checkpoint.has_manifest |= file == Manifest::kFileName;
    checkpoint.superseded |= file == kSupersededMarker;
    checkpoint.pinned |= !is_save_file(file);
    checkpoint.objects.push_back(std::move(object));
  }
  std::vector<RemoteCheckpoint> checkpoints;
  for (auto& [step, checkpoint] : found) checkpoints.push_back(std::move(checkpoint));
  return checkpoints;
}

Manifest RemoteStore::read_manifest(const RemoteCheckpoint& checkpoint, std::string& text) {
  const std::string name = remote_name(checkpoint.step, Manifest::kFileName);
  text = client_.read(name, Manifest::kMaxBytes);
  Manifest manifest = Manifest::parse(text, this->text(name));
  QUENCH_CHECK_AS(ErrorCode::corrupt, manifest.state.step == checkpoint.step, "{}: its step is {}", this->text(name),
                  manifest.state.step);
  for (const DataFileRecord& file : manifest.files) {
    const s3::S3Object* object = find_object(checkpoint, file.name);
    QUENCH_CHECK_AS(ErrorCode::corrupt, object != nullptr && object->bytes == file.size,
                    "{} has {}; the manifest names {} bytes", this->text(remote_name(checkpoint.step, file.name)),
                    object == nullptr ? "no such object" : fmt::format("{} bytes", object->bytes), file.size);
  }
  return manifest;
}

void RemoteStore::fetch(const RemoteCheckpoint& checkpoint, const fs::path& folder) {
  std::string text;
  const Manifest manifest = read_manifest(checkpoint, text);
  std::uint64_t needed = text.size();
  for (const DataFileRecord& file : manifest.files) needed += file.size;

  const fs::path target = folder / step_name(checkpoint.step);
  fs::create_directories(folder);
  remove_stale_temporaries(folder, step_name(checkpoint.step));
  StagingFolder staging(target);
  const std::uint64_t available = free_disk_bytes(folder);
  QUENCH_CHECK_AS(ErrorCode::no_space, needed <= available,
                  "{}: {} bytes are to be downloaded to {}, {} are free there", this->text(step_name(checkpoint.step)),
                  needed, folder.string(), available);
  QUENCH_LOG_INFO("downloading {} ({:.1f} MiB)", this->text(step_name(checkpoint.step)),
                  static_cast<double>(needed) / (1 << 20));
  bool all_hashed = true;
  for (const DataFileRecord& file : manifest.files) {
    const std::string name = remote_name(checkpoint.step, file.name);
    const auto info = client_.find(name);
    QUENCH_CHECK_AS(ErrorCode::corrupt, info && info->bytes == file.size, "{} is gone, or has another size",
                    this->text(name));
    all_hashed &= info->digest().has_value();
    client_.fetch(name, *info, staging.path() / file.name);
  }
  write_file_atomically(staging.path() / Manifest::kFileName, text);
  if (all_hashed) {
    const CheckpointReader opened(staging.path(), Verify::none);
  } else {
    const VerifyReport report = verify_checkpoint(staging.path());
    QUENCH_CHECK_AS(ErrorCode::corrupt, report.ok(), "{}: {}", this->text(step_name(checkpoint.step)),
                    report.faults.front());
  }
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(target, ignored)))
    rename_durably(target, folder / fmt::format("kept-{}-{}", step_name(checkpoint.step), manifest.save_uuid));
  rename_durably(staging.path(), target);
  staging.release();
}

std::optional<std::string> RemoteStore::saved_uuid(std::int64_t step) {
  const auto info = client_.find(remote_name(step, Manifest::kFileName));
  if (!info) return std::nullopt;
  const auto found = info->metadata.find(kSaveKey);
  return found == info->metadata.end() ? std::string() : found->second;
}

void RemoteStore::remove(const RemoteCheckpoint& checkpoint) {
  client_.remove(remote_name(checkpoint.step, Manifest::kFileName));
  for (const s3::S3Object& object : checkpoint.objects) client_.remove(object.name);
}

void RemoteStore::mark_superseded(std::int64_t step, std::int64_t by) {
  client_.write(remote_name(step, kSupersededMarker),
                fmt::format("the run went back before this checkpoint and saved step {}\n", by), {});
}

}  // namespace quench
