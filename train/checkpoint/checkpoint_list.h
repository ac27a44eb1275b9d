#pragma once
// Discovery of a run's checkpoints.
//
// Valid: a directory step-<N> (no leading zeros) with an intact manifest and data files of the recorded sizes. The file
// LATEST is informative, never read.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint/checkpoint_reader.h"

namespace quench {

// Folder prefix (followed by a number) of a replaced run's checkpoints.
inline constexpr std::string_view kEarlierPrefix = "earlier-";

// Marker file of a checkpoint of an abandoned branch: the run rolled back and saved again; neither resumed from nor
// deleted.
inline constexpr std::string_view kSupersededMarker = "SUPERSEDED";

// Checkpoint in deletion.
inline constexpr std::string_view kTrashPrefix = ".trash-";
// Write test of the folder: this, a UUID, and once it is renamed the suffix.
inline constexpr std::string_view kProbePrefix = ".trash-probe-";
// Suffix of the renamed write test.
inline constexpr std::string_view kProbeSuffix = "-renamed";
// Temporary folder of a replaced step-N during a save.
inline constexpr std::string_view kReplacedSuffix = "-replaced";

// File of the write test of a folder.
inline constexpr std::string_view kProbeFile = "probe";

// Names of the files in a checkpoint and in the temporary folders of a save; others are a user's.
[[nodiscard]] bool is_save_file(std::string_view name) noexcept;

// Entry named step-N, valid or not.
struct CheckpointInfo {
  std::int64_t step = 0;
  std::filesystem::path path;
  bool valid = false;        // manifest intact, data files of the right sizes; data not read
  bool unsupported = false;  // newer format version, hence invalid
  // Invalid with unknown content (unreadable, no manifest, dangling link, no folder); others are damaged.
  bool unjudged = false;
  std::string fault;
  bool pinned = false;  // by a file that no save wrote, such as PINNED: exempt from retention
  bool superseded = false;
  bool symlink = false;  // the entry itself is a symbolic link
};

// Entry of a checkpoint folder that is no checkpoint.
struct IgnoredEntry {
  std::string name;
  std::string reason;
  bool renamed = false;  // contains a checkpoint name: "step-10.bak", "pinned-step-10-...", "step-000010"
};

// Entries of a checkpoint folder.
struct CheckpointListing {
  std::vector<CheckpointInfo> checkpoints;  // by descending step
  std::vector<IgnoredEntry> ignored;        // names other than step-N, sorted
  std::vector<std::string> discarded;       // intact checkpoints with begun deletion (.trash-...)
};

// "step-120" -> 120; nullopt for others, leading zeros, int64 overflow.
[[nodiscard]] std::optional<std::int64_t> parse_step_name(std::string_view name) noexcept;
// "step-120" for 120.
[[nodiscard]] std::string step_name(std::int64_t step);

// "step-120.tmp-<uuid>-replaced" -> 120.
[[nodiscard]] std::optional<std::int64_t> parse_replaced_name(std::string_view name) noexcept;

// State of the entry `path`, named step-<step>. Does not throw for a damaged one.
[[nodiscard]] CheckpointInfo inspect_checkpoint(std::int64_t step, const std::filesystem::path& path);

// Empty for an absent folder. A replaced checkpoint without successor is listed under its current path. Throws io for
// an unreadable folder or a dangling link.
[[nodiscard]] CheckpointListing list_checkpoints(const std::filesystem::path& folder);

// Newest valid, not superseded checkpoint. Warns once per ignored and invalid entry; without step-N entries only for
// names that contain a checkpoint name.
[[nodiscard]] std::optional<CheckpointInfo> latest_valid(const std::filesystem::path& folder);

// Calls `load` with the newest valid checkpoint. On Error corrupt: logs an error and retries with the previous one;
// `load` must overwrite all restored state. Returns the loaded checkpoint; nullopt without checkpoint entries.
// Throws
// - corrupt when a newer entry has unknown content or is unreadable (Error io): resuming would abandon it;
// - corrupt when checkpoints exist but none is loadable, or all are superseded, renamed or discarded;
// - unsupported when the newest has a newer format version.
// Other errors of `load` propagate.
std::optional<CheckpointInfo> load_latest(const std::filesystem::path& folder,
                                          const std::function<void(CheckpointReader&)>& load,
                                          Verify verify = Verify::hashes);

}  // namespace quench
