#pragma once
// Finds the checkpoints of a run and picks the one to resume from.
//
// The truth is the folder's content: directories named step-<N> (no leading zeros) whose manifest is whole and whose
// data files have the sizes it states. The file LATEST is a hint for people and scripts and is never read.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint/checkpoint_reader.h"

namespace quench {

// Checkpoints of a run in whose place another one was started: folders of this name and a number.
inline constexpr std::string_view kEarlierPrefix = "earlier-";

// Marker files inside a checkpoint. PINNED: retention never deletes it; people create it. SUPERSEDED: the run went
// back to an earlier step and saved again, so that this checkpoint belongs to an abandoned line of training and is
// neither resumed from nor deleted automatically.
inline constexpr std::string_view kPinnedMarker = "PINNED";
inline constexpr std::string_view kSupersededMarker = "SUPERSEDED";

// Before the name of a checkpoint that is being deleted.
inline constexpr std::string_view kTrashPrefix = ".trash-";
// Appended to the name of a temporary folder by a save that moves an earlier step-N out of its way.
inline constexpr std::string_view kReplacedSuffix = "-replaced";

// An entry called step-N, whatever it turns out to be.
struct CheckpointInfo {
  std::int64_t step = 0;
  std::filesystem::path path;
  bool valid = false;        // manifest whole, data files present with the right sizes; data not read
  bool unsupported = false;  // not valid here because a newer program wrote it
  // Not valid, and nobody can tell what it holds: unreadable, without a manifest, a link to nothing, no folder. Other
  // invalid ones are known to be damaged.
  bool unjudged = false;
  std::string fault;  // why not valid
  bool pinned = false;
  bool superseded = false;
  bool symlink = false;  // the entry itself is a symbolic link
};

struct IgnoredEntry {
  std::string name;
  std::string reason;
  bool renamed = false;  // the name holds that of a checkpoint: "step-10.bak", "pinned-step-10-...", "step-000010"
};

struct CheckpointListing {
  std::vector<CheckpointInfo> checkpoints;  // descending step
  std::vector<IgnoredEntry> ignored;        // not called step-N; sorted by name
  std::vector<std::string> discarded;       // whole checkpoints whose deletion has begun (.trash-...)
};

// "step-120" -> 120; nullopt for anything else, leading zeros and numbers beyond int64 included.
[[nodiscard]] std::optional<std::int64_t> parse_step_name(std::string_view name) noexcept;
[[nodiscard]] std::string step_name(std::int64_t step);

// "step-120.tmp-<uuid>-replaced" -> 120: an earlier step-120, moved away by a save whose own step-120 was to follow.
[[nodiscard]] std::optional<std::int64_t> parse_replaced_name(std::string_view name) noexcept;

// What the folder of a checkpoint, or what has its name, turns out to be.
[[nodiscard]] CheckpointInfo inspect_checkpoint(std::int64_t step, const std::filesystem::path& path);

// An absent folder lists nothing. A checkpoint that was moved away for one that never came is listed where it is.
// Throws io when the folder cannot be read, or is a link to nothing.
[[nodiscard]] CheckpointListing list_checkpoints(const std::filesystem::path& folder);

// The newest valid checkpoint that is not superseded. Warns once for each ignored and each invalid entry; of a folder
// without any entry called step-N, only for ignored ones whose names hold that of a checkpoint.
[[nodiscard]] std::optional<CheckpointInfo> latest_valid(const std::filesystem::path& folder);

// Calls `load` with the newest valid checkpoint; where its data turn out damaged (Error corrupt), logs that as an error
// and calls `load` again with the one before, and so on. `load` must overwrite all it restores. Returns the checkpoint
// that was loaded, nullopt when the folder holds nothing that is or was called a checkpoint. Throws corrupt
//   - when an entry newer than the one to load cannot be judged, or cannot be read (Error io): going on from an older
//     one would abandon it;
//   - when there are checkpoints, but none can be loaded, or only superseded, renamed or discarded ones;
// and unsupported when the newest was written by a newer program. Other errors of `load` pass through. To insist on one
// checkpoint, use CheckpointReader directly: it never falls back.
std::optional<CheckpointInfo> load_latest(const std::filesystem::path& folder,
                                          const std::function<void(CheckpointReader&)>& load,
                                          Verify verify = Verify::hashes);

}  // namespace quench
