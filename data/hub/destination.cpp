#include "data/hub/destination.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/temporary.h"
#include "data/hub/cache.h"
#include "data/hub/digest.h"

namespace quench::hub {
namespace {

namespace fs = std::filesystem;

// `remedy`: where else to write.
void create_folders(const fs::path& folder, std::string_view remedy) {
  std::error_code error;
  fs::create_directories(folder, error);
  QUENCH_CHECK_AS(is_no_space(error.value()) ? ErrorCode::no_space : ErrorCode::io, !error,
                  "{}: the folder cannot be made: {}; {}", folder.string(), error.message(), remedy);
}

constexpr std::string_view kOtherCache = "name another cache in HF_HUB_CACHE, or a folder with --local-dir";
constexpr std::string_view kOtherFolder = "name another folder with --local-dir";

class CacheDestination final : public Destination {
 public:
  CacheDestination(const fs::path& cache, const HubName& name, std::string commit)
      : folders_(cache, name), name_(name), commit_(std::move(commit)) {}

  // A cache that has all files may be read-only.
  void check(const std::vector<HubFile>& files) override {
    std::error_code ignored;
    if (std::ranges::all_of(files, [&](const HubFile& file) { return fs::exists(folder() / file.path, ignored); }))
      return;
    for (const fs::path& needed : {folders_.repo / "blobs", folder(), folders_.locks})
      create_folders(needed, kOtherCache);
  }

  bool has(const HubFile& file) override {
    std::error_code error;
    if (fs::file_size(folder() / file.path, error) == file.size && !error) return true;
    // The content of another file or revision.
    if (fs::file_size(folders_.blob(file.etag()), error) != file.size || error) return false;
    link(file);
    return true;
  }

  [[nodiscard]] fs::path incomplete(const HubFile& file) const override {
    return folders_.blob(file.etag() + ".incomplete");
  }
  [[nodiscard]] fs::path lock(const HubFile& file) const override { return folders_.locks / (file.etag() + ".lock"); }

  void place(const HubFile& file) override {
    rename_durably(incomplete(file), folders_.blob(file.etag()));
    link(file);
  }

  void finish() override {
    if (is_commit(name_.revision) || cached_snapshot(folders_.repo.parent_path(), name_) == folder()) return;
    sync_directory(folder());
    const fs::path ref = folders_.ref(name_.revision);
    create_folders(ref.parent_path(), kOtherCache);
    write_file_atomically(ref, commit_);
  }

  [[nodiscard]] fs::path folder() const override { return folders_.snapshot(commit_); }

 private:
  // Relative, so that the cache may be moved. File systems without links get the content itself.
  void link(const HubFile& file) {
    const fs::path at = folder() / file.path, blob = folders_.blob(file.etag());
    create_folders(at.parent_path(), kOtherCache);
    const fs::path target = fs::relative(blob, at.parent_path());
    std::error_code error;
    fs::create_symlink(target, at, error);
    if (!error || (error == std::errc::file_exists && fs::read_symlink(at, error) == target)) return;
    const fs::path fresh = temporary_name(at);  // two processes may be here
    fs::create_symlink(target, fresh, error);
    if (error) fs::copy_file(blob, fresh, error);
    QUENCH_CHECK_AS(is_no_space(error.value()) ? ErrorCode::no_space : ErrorCode::io, !error,
                    "{}: neither a link nor a copy of the file can be made: {}", at.string(), error.message());
    rename_path(fresh, at);
  }

  CacheFolder folders_;
  HubName name_;
  std::string commit_;
};

class FolderDestination final : public Destination {
 public:
  FolderDestination(fs::path folder, bool overwrite) : folder_(std::move(folder)), overwrite_(overwrite) {}

  void check(const std::vector<HubFile>& files) override {
    std::error_code ignored;
    const fs::file_status status = fs::status(folder_, ignored);
    QUENCH_CHECK_AS(ErrorCode::bad_config, !fs::exists(status) || fs::is_directory(status),
                    "--local-dir {}: it exists and is not a folder", folder_.string());
    std::string different;
    for (const HubFile& file : files) {
      require_plain(file);
      if (fs::exists(folder_ / file.path, ignored) && !has(file) && !overwrite_)
        different += (different.empty() ? "" : ", ") + file.path;
    }
    QUENCH_CHECK_AS(
        ErrorCode::bad_config, different.empty(),
        "--local-dir {}: the folder holds files of other content: {}; choose another folder, or --overwrite "
        "to replace them",
        folder_.string(), different);
    create_folders(work_folder(), kOtherFolder);
    const fs::path ignore = folder_ / ".cache" / "huggingface" / ".gitignore";
    if (!fs::exists(ignore, ignored)) write_file_atomically(ignore, "*\n");
  }

  bool has(const HubFile& file) override {
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = known_.find(file.path); known != known_.end()) return known->second;
    }
    const fs::path path = folder_ / file.path;
    std::error_code error;
    const bool same = fs::is_regular_file(fs::symlink_status(path, error)) && fs::file_size(path, error) == file.size &&
                      !error && file_digest(path, file.digest_kind()) == file.etag();
    const std::lock_guard lock(mutex_);
    // Another process may add the file later.
    if (same) known_[file.path] = true;
    return same;
  }

  [[nodiscard]] fs::path incomplete(const HubFile& file) const override {
    return work_folder() / (flat(file) + "." + file.etag() + ".incomplete");
  }
  [[nodiscard]] fs::path lock(const HubFile& file) const override { return work_folder() / (flat(file) + ".lock"); }

  void place(const HubFile& file) override {
    require_plain(file);
    create_folders((folder_ / file.path).parent_path(), kOtherFolder);
    rename_durably(incomplete(file), folder_ / file.path);
  }

  void finish() override {}
  [[nodiscard]] fs::path folder() const override { return folder_; }

 private:
  [[nodiscard]] fs::path work_folder() const { return folder_ / ".cache" / "huggingface" / "download"; }

  // Name of its part and its lock, in one folder; of long paths the digest.
  static std::string flat(const HubFile& file) {
    constexpr std::size_t kMost = 150;
    std::string name = file.path.size() <= kMost ? file.path : file.etag();
    std::ranges::replace(name, '/', '_');
    return name;
  }

  // No link or file among the parent folders, and no folder or link in the file's place.
  void require_plain(const HubFile& file) const {
    fs::path at = folder_;
    const fs::path relative(file.path);
    for (auto part = relative.begin(); part != relative.end(); ++part) {
      at /= *part;
      std::error_code ignored;
      const fs::file_type type = fs::symlink_status(at, ignored).type();
      if (type == fs::file_type::not_found || type == fs::file_type::none) return;
      const bool last = std::next(part) == relative.end();
      QUENCH_CHECK_AS(ErrorCode::bad_config, type == (last ? fs::file_type::regular : fs::file_type::directory),
                      "--local-dir {}: {} is {}, where the repository has a {}; move it away, or choose another folder",
                      folder_.string(), at.string(),
                      type == fs::file_type::symlink     ? "a link"
                      : type == fs::file_type::directory ? "a folder"
                                                         : "no folder",
                      last ? "file" : "folder");
    }
  }

  fs::path folder_;
  bool overwrite_;
  std::mutex mutex_;
  std::map<std::string, bool> known_;
};

}  // namespace

std::unique_ptr<Destination> cache_destination(const fs::path& cache, const HubName& name, const std::string& commit) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, !cache.empty(),
                  "there is no home folder (HOME) for the cache of the hub; name one in HF_HUB_CACHE, or a folder with "
                  "--local-dir");
  return std::make_unique<CacheDestination>(cache, name, commit);
}

std::unique_ptr<Destination> folder_destination(const fs::path& folder, bool overwrite) {
  return std::make_unique<FolderDestination>(folder, overwrite);
}

}  // namespace quench::hub
