#include "train/checkpoint/checkpoint_list.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "core/log.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";

// Files that belong to the folder, and leftovers that the next writer removes: no news.
bool is_expected(std::string_view name) {
  return name == "LATEST" || name.starts_with('.') || name.starts_with("LATEST.tmp-") ||
         (name.starts_with(kStepPrefix) && name.find(".tmp-") != std::string_view::npos);
}

// True as well when that cannot be found out: a checkpoint that may be pinned is treated as pinned.
bool has_marker(const fs::path& checkpoint, std::string_view marker) {
  std::error_code error;
  return fs::exists(checkpoint / marker, error) || error;
}

CheckpointInfo inspect(std::int64_t step, const fs::path& path) {
  CheckpointInfo info;
  info.step = step;
  info.path = path;
  std::error_code ignored;
  info.symlink = fs::is_symlink(path, ignored);
  info.pinned = has_marker(path, kPinnedMarker);
  info.superseded = has_marker(path, kSupersededMarker);
  try {
    const Manifest manifest = read_manifest(path);
    for (const DataFileRecord& file : manifest.files) {
      const fs::path data = path / file.name;
      std::error_code error;
      const auto size = fs::file_size(data, error);
      QUENCH_CHECK_AS(ErrorCode::corrupt, !error, "{}: {}", data.string(), error.message());
      QUENCH_CHECK_AS(ErrorCode::corrupt, size == file.size, "{} has {} bytes, the manifest states {}", data.string(),
                      size, file.size);
    }
    info.valid = true;
  } catch (const Error& error) {
    info.fault = error.what();
    info.unsupported = error.code() == ErrorCode::unsupported;
  }
  return info;
}

void warn_ignored(const CheckpointListing& listing, const fs::path& folder) {
  for (const IgnoredEntry& entry : listing.ignored)
    QUENCH_LOG_WARN("{}: ignored, {}", (folder / entry.name).string(), entry.reason);
  for (const CheckpointInfo& info : listing.checkpoints) {
    if (!info.valid) QUENCH_LOG_WARN("{}: not usable: {}", info.path.string(), info.fault);
    if (info.superseded)
      QUENCH_LOG_WARN("{}: skipped, the run continued from an earlier step after it was saved", info.path.string());
  }
}

}  // namespace

std::optional<std::int64_t> parse_step_name(std::string_view name) noexcept {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  name.remove_prefix(kStepPrefix.size());
  if (name.empty() || name.front() < '0' || name.front() > '9' || (name.front() == '0' && name.size() > 1))
    return std::nullopt;
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  return step;
}

std::string step_name(std::int64_t step) {
  return fmt::format("{}{}", kStepPrefix, step);
}

CheckpointListing list_checkpoints(const fs::path& folder) {
  CheckpointListing listing;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error == std::errc::no_such_file_or_directory) return listing;
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    if (is_expected(name)) continue;
    const auto ignore = [&](std::string reason) { listing.ignored.push_back({name, std::move(reason)}); };
    const auto step = parse_step_name(name);
    if (!step) {
      ignore("its name is not step-<number>");
      continue;
    }
    std::error_code status_error;
    const fs::file_status status = fs::status(entries->path(), status_error);
    if (status_error || !fs::exists(status)) {
      ignore(status_error && status_error != std::errc::no_such_file_or_directory
                 ? "it cannot be inspected: " + status_error.message()
                 : "it is a symbolic link to nothing");
    } else if (!fs::is_directory(status)) {
      ignore("it is not a folder");
    } else if (fs::file_status manifest = fs::status(entries->path() / Manifest::kFileName, status_error);
               manifest.type() == fs::file_type::not_found) {
      ignore("it has no manifest.json");
    } else {
      listing.checkpoints.push_back(inspect(*step, entries->path()));
    }
  }
  QUENCH_CHECK_AS(ErrorCode::io, !error, "cannot list the folder {}: {}", folder.string(), error.message());
  std::sort(listing.checkpoints.begin(), listing.checkpoints.end(),
            [](const CheckpointInfo& a, const CheckpointInfo& b) { return a.step > b.step; });
  std::sort(listing.ignored.begin(), listing.ignored.end(),
            [](const IgnoredEntry& a, const IgnoredEntry& b) { return a.name < b.name; });
  return listing;
}

std::optional<CheckpointInfo> latest_valid(const fs::path& folder) {
  const CheckpointListing listing = list_checkpoints(folder);
  warn_ignored(listing, folder);
  for (const CheckpointInfo& info : listing.checkpoints)
    if (info.valid && !info.superseded) return info;
  return std::nullopt;
}

std::optional<CheckpointInfo> load_latest(const fs::path& folder, const std::function<void(CheckpointReader&)>& load,
                                          Verify verify) {
  const CheckpointListing listing = list_checkpoints(folder);
  warn_ignored(listing, folder);
  std::string faults;
  for (const CheckpointInfo& info : listing.checkpoints) {
    if (info.superseded) continue;
    // Going on from an older step would abandon what the newer program trained.
    QUENCH_CHECK_AS(ErrorCode::unsupported, !info.unsupported, "{}", info.fault);
    std::string fault = info.fault;
    if (info.valid) {
      try {
        CheckpointReader reader(info.path, verify);
        load(reader);
        if (!faults.empty())
          QUENCH_LOG_ERROR("newer checkpoints could not be loaded; continuing from {}", info.path.string());
        return info;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::io) throw;
        fault = error.what();
        QUENCH_LOG_ERROR("cannot load {}: {}", info.path.string(), fault);
      }
    }
    faults += "\n  " + fault;
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, faults.empty(),
                  "none of the checkpoints in {} can be loaded; restore one, or move them away to start from the "
                  "beginning:{}",
                  folder.string(), faults);
  return std::nullopt;
}

}  // namespace quench
