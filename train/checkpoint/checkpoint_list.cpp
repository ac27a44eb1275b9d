#include "train/checkpoint/checkpoint_list.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "core/system/log.h"
#include "core/system/output_folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";

// Expected files, and leftovers for the next writer to remove.
bool is_expected(std::string_view name) {
  return name == "LATEST" || name.starts_with('.') || name.starts_with(kEarlierPrefix) ||
         name.starts_with("LATEST.tmp-") ||
         (name.starts_with(kStepPrefix) && name.find(".tmp-") != std::string_view::npos);
}

// Also if unknown; false for no folder.
bool holds_other_files(const fs::path& checkpoint) {
  std::error_code error;
  const fs::file_status status = fs::status(checkpoint, error);
  if (fs::status_known(status) && !fs::is_directory(status)) return false;
  try {
    return !foreign_entries(checkpoint, is_save_file).empty();
  } catch (const std::exception&) {
    return true;
  }
}

bool names_a_step(std::string_view name) {
  for (auto at = name.find(kStepPrefix); at != std::string_view::npos; at = name.find(kStepPrefix, at + 1)) {
    const auto digit = at + kStepPrefix.size();
    if (digit < name.size() && name[digit] >= '0' && name[digit] <= '9') return true;
  }
  return false;
}

// Sets `error` if unknown.
bool has_marker(const fs::path& checkpoint, std::string_view marker, std::error_code& error) {
  const fs::file_type type = fs::symlink_status(checkpoint / marker, error).type();
  if (type == fs::file_type::not_found) error.clear();
  return !error && type != fs::file_type::not_found;
}

void check_data_files(const fs::path& path) {
  const Manifest manifest = read_manifest(path);
  for (const DataFileRecord& file : manifest.files) {
    const fs::path data = path / file.name;
    std::error_code error;
    const auto size = fs::file_size(data, error);
    if (error)
      QUENCH_FAIL(error == std::errc::no_such_file_or_directory ? ErrorCode::corrupt : ErrorCode::io, "{}: {}",
                  data.string(), error.message());
    QUENCH_CHECK_AS(ErrorCode::corrupt, size == file.size, "{} has {} bytes, but {} in the manifest", data.string(),
                    size, file.size);
  }
}

// Reason why an entry is no folder with a manifest; empty if it is, or if opening the manifest reports it.
std::string no_checkpoint(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::not_found) return "it is a dangling symbolic link: is its target mounted?";
  if (error) return "it cannot be inspected: " + error.message();
  if (type != fs::file_type::directory) return "it is not a folder";
  if (fs::symlink_status(path / Manifest::kFileName, error).type() == fs::file_type::not_found)
    return fmt::format("it has no {}", Manifest::kFileName);
  return {};
}

void warn_ignored(const CheckpointListing& listing, const fs::path& folder) {
  for (const IgnoredEntry& entry : listing.ignored)
    QUENCH_LOG_WARN("{}: ignored, {}", (folder / entry.name).string(), entry.reason);
  for (const CheckpointInfo& info : listing.checkpoints) {
    if (!info.valid)
      QUENCH_LOG_WARN("{}: {}: {}", info.path.string(), info.unjudged ? "cannot be judged" : "not usable", info.fault);
    if (info.superseded)
      QUENCH_LOG_WARN("{}: skipped, the run continued from an earlier step after it was saved", info.path.string());
  }
}

using Lines = std::vector<std::string>;

std::string joined(const Lines& lines) {
  return fmt::format("\n  {}", fmt::join(lines, "\n  "));
}

// `loadable`: newest loadable step.
void refuse_unjudged(const fs::path& folder, const Lines& unjudged, std::optional<std::int64_t> loadable) {
  if (unjudged.empty()) return;
  QUENCH_FAIL(ErrorCode::corrupt,
              "{} has entries that cannot be read, so the run {}:{}\nmake them readable, restore them, or move them "
              "out of the folder; or choose: {}",
              folder.string(),
              loadable ? "does not resume from an older checkpoint" : "does not start from the beginning",
              joined(unjudged),
              loadable ? fmt::format("--checkpoint.resume={} resumes from the newest that can be loaded", *loadable)
                       : std::string("--checkpoint.resume=never starts anew"));
}

// Without a resumable step-N.
void refuse_leftovers(const fs::path& folder, const CheckpointListing& listing) {
  Lines found;
  for (const CheckpointInfo& info : listing.checkpoints)
    found.push_back(
        fmt::format("{}: superseded{}", info.path.filename().string(), info.valid ? "" : ", " + info.fault));
  for (const IgnoredEntry& entry : listing.ignored)
    if (entry.renamed) found.push_back(fmt::format("{}: {}", entry.name, entry.reason));
  for (const std::string& name : listing.discarded) found.push_back(name + ": its deletion was interrupted");
  QUENCH_CHECK_AS(ErrorCode::corrupt, found.empty(),
                  "{} holds checkpoints, but none that a resume chooses automatically:{}\nname one with "
                  "--checkpoint.resume=FOLDER, rename it to step-<number>, or move them out of the folder; "
                  "--checkpoint.resume=never starts anew",
                  folder.string(), joined(found));
}

// Not superseded, at or after `from`.
std::optional<std::int64_t> next_valid(const CheckpointListing& listing, std::size_t from) {
  for (std::size_t i = from; i < listing.checkpoints.size(); ++i)
    if (listing.checkpoints[i].valid && !listing.checkpoints[i].superseded) return listing.checkpoints[i].step;
  return std::nullopt;
}

}  // namespace

bool is_save_file(std::string_view name) noexcept {
  constexpr std::string_view kData = "rank-", kEnding = ".safetensors";
  return name == Manifest::kFileName || name == kSupersededMarker || name == kProbeFile ||
         (name.starts_with(kData) && name.ends_with(kEnding) &&
          std::ranges::all_of(name.substr(kData.size(), name.size() - kData.size() - kEnding.size()),
                              [](char c) { return c >= '0' && c <= '9'; }));
}

CheckpointInfo inspect_checkpoint(std::int64_t step, const fs::path& path) {
  CheckpointInfo info;
  info.step = step;
  info.path = path;
  std::error_code ignored;
  info.symlink = fs::is_symlink(path, ignored);
  info.fault = no_checkpoint(path);
  info.unjudged = !info.fault.empty();
  std::error_code error;
  info.pinned = holds_other_files(path);
  info.superseded = has_marker(path, kSupersededMarker, error);
  if (error && !info.unjudged) {
    info.unjudged = true;
    info.fault = fmt::format("cannot check whether it has a file {}: {}", kSupersededMarker, error.message());
  }
  if (info.unjudged) return info;
  try {
    check_data_files(path);
    info.valid = true;
  } catch (const Error& failure) {
    info.fault = failure.what();
    info.unsupported = failure.code() == ErrorCode::unsupported;
    info.unjudged = failure.code() != ErrorCode::corrupt && !info.unsupported;
  }
  return info;
}

std::optional<std::int64_t> parse_replaced_name(std::string_view name) noexcept {
  const auto suffix = name.find(".tmp-");
  if (suffix == std::string_view::npos || !name.ends_with(kReplacedSuffix)) return std::nullopt;
  return parse_step_name(name.substr(0, suffix));
}

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
  if (error == std::errc::no_such_file_or_directory) {
    std::error_code ignored;
    QUENCH_CHECK_AS(ErrorCode::io, !fs::is_symlink(folder, ignored),
                    "{} is a dangling symbolic link: is its target mounted?", folder.string());
    return listing;
  }
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const fs::path& path = entries->path();
    const std::string name = path.filename().string();
    const auto replaced = parse_replaced_name(name);
    std::error_code ignored;
    if (replaced && fs::symlink_status(folder / step_name(*replaced), ignored).type() == fs::file_type::not_found) {
      listing.checkpoints.push_back(inspect_checkpoint(*replaced, path));
    } else if (name.starts_with(kTrashPrefix) && names_a_step(name)) {
      if (inspect_checkpoint(0, path).valid) listing.discarded.push_back(name);
    } else if (const auto step = parse_step_name(name)) {
      listing.checkpoints.push_back(inspect_checkpoint(*step, path));
    } else if (!is_expected(name)) {
      listing.ignored.push_back({name, "its name is not step-<number>", names_a_step(name)});
    }
  }
  QUENCH_CHECK_AS(ErrorCode::io, !error, "cannot list the folder {}: {}", folder.string(), error.message());
  std::sort(listing.checkpoints.begin(), listing.checkpoints.end(),
            [](const CheckpointInfo& a, const CheckpointInfo& b) { return a.step > b.step; });
  std::sort(listing.ignored.begin(), listing.ignored.end(),
            [](const IgnoredEntry& a, const IgnoredEntry& b) { return a.name < b.name; });
  std::sort(listing.discarded.begin(), listing.discarded.end());
  return listing;
}

std::optional<CheckpointInfo> latest_valid(const fs::path& folder) {
  CheckpointListing listing = list_checkpoints(folder);
  if (listing.checkpoints.empty())
    std::erase_if(listing.ignored, [](const IgnoredEntry& entry) { return !entry.renamed; });
  warn_ignored(listing, folder);
  for (const CheckpointInfo& info : listing.checkpoints)
    if (info.valid && !info.superseded) return info;
  return std::nullopt;
}

std::optional<CheckpointInfo> load_latest(const fs::path& folder, const std::function<void(CheckpointReader&)>& load,
                                          Verify verify) {
  const CheckpointListing listing = list_checkpoints(folder);
  warn_ignored(listing, folder);
  Lines faults, unjudged;
  for (std::size_t i = 0; i < listing.checkpoints.size(); ++i) {
    const CheckpointInfo& info = listing.checkpoints[i];
    if (info.superseded) continue;
    // An older step would abandon the newer program's progress.
    QUENCH_CHECK_AS(ErrorCode::unsupported, !info.unsupported, "{}", info.fault);
    if (info.unjudged) {
      unjudged.push_back(fmt::format("{}: {}", info.path.string(), info.fault));
      continue;
    }
    std::string fault = info.fault;
    if (info.valid) {
      refuse_unjudged(folder, unjudged, info.step);
      try {
        CheckpointReader reader(info.path, verify);
        load(reader);
        if (!faults.empty())
          QUENCH_LOG_ERROR("newer checkpoints could not be loaded; continuing from {}", info.path.string());
        return info;
      } catch (const Error& error) {
        if (error.code() == ErrorCode::io)
          refuse_unjudged(folder, {fmt::format("{}: {}", info.path.string(), error.what())},
                          next_valid(listing, i + 1));
        if (error.code() != ErrorCode::corrupt) throw;
        fault = error.what();
        QUENCH_LOG_ERROR("cannot load {}: {}", info.path.string(), fault);
      }
    }
    faults.push_back(fault);
  }
  refuse_unjudged(folder, unjudged, std::nullopt);
  QUENCH_CHECK_AS(ErrorCode::corrupt, faults.empty(),
                  "none of the checkpoints in {} can be loaded; restore one, or move them away to start from the "
                  "beginning:{}",
                  folder.string(), joined(faults));
  refuse_leftovers(folder, listing);
  return std::nullopt;
}

}  // namespace quench
