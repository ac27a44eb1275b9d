#pragma once
// Discovery of a run's checkpoints and selection of the one to resume from.
//
// Valid: a directory step-<N> (no leading zeros) with an intact manifest and data files of the recorded sizes. The file
// LATEST is informative and never read.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint/checkpoint_reader.h"

namespace quench {

// Folder prefix, followed by a number, of the checkpoints of a replaced run.
inline constexpr std::string_view kEarlierPrefix = "earlier-";

// Marker files inside a checkpoint. PINNED (set by users): exempt from retention. SUPERSEDED: the run rolled back to an
// earlier step and saved again; the checkpoint is neither resumed from nor deleted.
inline constexpr std::string_view kPinnedMarker = "PINNED";
inline constexpr std::string_view kSupersededMarker = "SUPERSEDED";

// Name prefix of a checkpoint being deleted.
inline constexpr std::string_view kTrashPrefix = ".trash-";
// Suffix of the temporary folder that holds a replaced step-N during a save.
inline constexpr std::string_view kReplacedSuffix = "-replaced";

// An entry named step-N, valid or not.
struct CheckpointInfo {
  std::int64_t step = 0;
  std::filesystem::path path;
  bool valid = false;        // manifest intact, data files present with the right sizes; data not read
  bool unsupported = false;  // invalid because of a newer format version
  // Invalid with unknown content: unreadable, no manifest, dangling link, or no folder. Other invalid entries are
  // damaged.
  bool unjudged = false;
  std::string fault;
  bool pinned = false;
  bool superseded = false;
  bool symlink = false;  // the entry itself is a symbolic link
};

struct IgnoredEntry {
  std::string name;
  std::string reason;
  bool renamed = false;  // name contains a checkpoint name: "step-10.bak", "pinned-step-10-...", "step-000010"
};

struct CheckpointListing {
  std::vector<CheckpointInfo> checkpoints;  // in descending step order
  std::vector<IgnoredEntry> ignored;        // names other than step-N; sorted by name
  std::vector<std::string> discarded;       // intact checkpoints with begun deletion (.trash-...)
};

// "step-120" -> 120; nullopt for anything else, including leading zeros and int64 overflow.
[[nodiscard]] std::optional<std::int64_t> parse_step_name(std::string_view name) noexcept;
[[nodiscard]] std::string step_name(std::int64_t step);

// "step-120.tmp-<uuid>-replaced" -> 120: an earlier step-120, moved by a save that replaces it.
[[nodiscard]] std::optional<std::int64_t> parse_replaced_name(std::string_view name) noexcept;

// Validity of one step-N entry.
[[nodiscard]] CheckpointInfo inspect_checkpoint(std::int64_t step, const std::filesystem::path& path);

// Empty for an absent folder. A replaced checkpoint whose successor is missing is listed under its current path. Throws
// io when the folder is unreadable or a dangling link.
[[nodiscard]] CheckpointListing list_checkpoints(const std::filesystem::path& folder);

// Newest valid, not superseded checkpoint. Warns once per ignored and invalid entry; in a folder without step-N entries
// only for ignored names that contain a checkpoint name.
[[nodiscard]] std::optional<CheckpointInfo> latest_valid(const std::filesystem::path& folder);

// Calls `load` with the newest valid checkpoint. On Error corrupt: logs an error and retries with the previous one;
// `load` must overwrite all restored state. Returns the loaded checkpoint; nullopt when the folder has no checkpoint
// entries.
// Throws
// - corrupt when an entry newer than the one to load is of unknown content or unreadable (Error io), since resuming
// from an older one would abandon it;
// - corrupt when checkpoints exist but none is loadable, or all are superseded, renamed or discarded;
// - unsupported when the newest has a newer format version.
// Other errors of `load` propagate. CheckpointReader opens one checkpoint without fallback.
std::optional<CheckpointInfo> load_latest(const std::filesystem::path& folder,
                                          const std::function<void(CheckpointReader&)>& load,
                                          Verify verify = Verify::hashes);

}  // namespace quench
