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

// Marker files inside a checkpoint. PINNED: retention never deletes it; people create it. SUPERSEDED: the run went
// back to an earlier step and saved again, so that this checkpoint belongs to an abandoned line of training and is
// neither resumed from nor deleted automatically.
inline constexpr std::string_view kPinnedMarker = "PINNED";
inline constexpr std::string_view kSupersededMarker = "SUPERSEDED";

struct CheckpointInfo {
  std::int64_t step = 0;
  std::filesystem::path path;
  bool valid = false;        // manifest whole, data files present with the right sizes; data not read
  bool unsupported = false;  // not valid here because a newer program wrote it
  std::string fault;         // why not valid
  bool pinned = false;
  bool superseded = false;
  bool symlink = false;  // the entry itself is a symbolic link
};

struct IgnoredEntry {
  std::string name;
  std::string reason;
};

struct CheckpointListing {
  std::vector<CheckpointInfo> checkpoints;  // descending step
  std::vector<IgnoredEntry> ignored;        // looked like a checkpoint but is none; sorted by name
};

// "step-120" -> 120; nullopt for anything else, leading zeros and numbers beyond int64 included.
[[nodiscard]] std::optional<std::int64_t> parse_step_name(std::string_view name) noexcept;
[[nodiscard]] std::string step_name(std::int64_t step);

// An absent folder lists nothing. Throws io when the folder cannot be read.
[[nodiscard]] CheckpointListing list_checkpoints(const std::filesystem::path& folder);

// The newest valid checkpoint that is not superseded. Warns once for each ignored and each invalid entry.
[[nodiscard]] std::optional<CheckpointInfo> latest_valid(const std::filesystem::path& folder);

// Calls `load` with the newest valid checkpoint; where its data turn out damaged or unreadable (Error corrupt or io),
// logs that as an error and calls `load` again with the one before, and so on. `load` must overwrite all it restores.
// Returns the checkpoint that was loaded, nullopt when the folder holds none. Throws corrupt when it holds some but
// none can be loaded, unsupported when the newest was written by a newer program; other errors of `load` pass through.
// To insist on one checkpoint, use CheckpointReader directly: it never falls back.
std::optional<CheckpointInfo> load_latest(const std::filesystem::path& folder,
                                          const std::function<void(CheckpointReader&)>& load,
                                          Verify verify = Verify::hashes);

}  // namespace quench
