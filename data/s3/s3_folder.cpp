#include "data/s3/s3_folder.h"

#include <algorithm>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/printable.h"
#include "core/system/temporary.h"
#include "data/hub/listing.h"

namespace quench::s3 {
namespace {

namespace fs = std::filesystem;

struct Wanted {
  std::string name;
  S3ObjectInfo info;
};

void put_last_file_last(std::vector<std::string>& names) {
  std::ranges::stable_partition(names, [](const std::string& name) { return name != kLastFile; });
}

bool has_content(const fs::path& path, const S3ObjectInfo& info, const hub::StopPoll& stop) {
  std::error_code error;
  if (fs::file_size(path, error) != info.bytes || error) return false;
  const auto stored = info.digest();
  return stored && stored->part_bytes > 0 && digest_file(path, stored->part_bytes, stop).stored() == *stored;
}

// Without markers of folders.
std::vector<std::string> names_below(S3Client& client) {
  std::vector<std::string> names;
  for (const S3Object& object : client.list("")) {
    if (object.name.empty() || object.name.ends_with('/')) continue;
    const std::string fault = hub::path_fault(object.name);
    QUENCH_CHECK_AS(ErrorCode::corrupt, fault.empty(), "{} holds \"{}\", which is refused as a file's name: {}",
                    client.place().text(), printable(object.name), fault);
    names.push_back(object.name);
  }
  QUENCH_CHECK_AS(ErrorCode::not_found, !names.empty(), "there is nothing below {}", client.place().text());
  put_last_file_last(names);
  return names;
}

}  // namespace

FolderTransfer fetch_folder(S3Client& client, const fs::path& folder, bool overwrite, const hub::StopPoll& stop) {
  FolderTransfer result;
  std::vector<Wanted> wanted;
  std::string different;
  for (const std::string& name : names_below(client)) {
    const auto info = client.find(name);
    QUENCH_CHECK_AS(ErrorCode::not_found, info, "{} is gone", client.place().text(name));
    std::error_code ignored;
    if (has_content(folder / name, *info, stop)) {
      result.unchanged.push_back(name);
      continue;
    }
    if (fs::exists(fs::symlink_status(folder / name, ignored))) different += (different.empty() ? "" : ", ") + name;
    wanted.push_back({name, *info});
    result.bytes += info->bytes;
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, different.empty() || overwrite,
                  "--local-dir {}: the folder holds files of other or unknown content: {}; choose another folder, or "
                  "--overwrite to replace them",
                  folder.string(), different);
  fs::create_directories(folder);
  const std::uint64_t available = free_disk_bytes(folder);
  QUENCH_CHECK_AS(ErrorCode::no_space, result.bytes <= available,
                  "--local-dir {}: {} bytes are to be downloaded, {} are free there", folder.string(), result.bytes,
                  available);
  for (const Wanted& file : wanted) {
    const fs::path path = folder / file.name;
    fs::create_directories(path.parent_path());
    remove_stale_temporaries(path.parent_path(), path.filename().string());
    const fs::path fresh = temporary_name(path);
    try {
      client.fetch(file.name, file.info, fresh);
      rename_durably(fresh, path);
    } catch (...) {
      std::error_code ignored;
      fs::remove(fresh, ignored);
      throw;
    }
    result.sent.push_back(file.name);
  }
  return result;
}

FolderTransfer send_folder(S3Client& client, const fs::path& folder, std::vector<std::string> files,
                           std::uint64_t part_bytes, const hub::StopPoll& stop) {
  put_last_file_last(files);
  FolderTransfer result;
  for (const std::string& name : files) {
    const FileDigest digest = digest_file(folder / name, part_bytes, stop);
    const auto info = client.find(name);
    if (info && info->bytes == digest.bytes && info->digest() == digest.stored()) {
      result.unchanged.push_back(name);
      continue;
    }
    client.send(name, folder / name, digest, {});
    result.sent.push_back(name);
    result.bytes += digest.bytes;
  }
  return result;
}

}  // namespace quench::s3
