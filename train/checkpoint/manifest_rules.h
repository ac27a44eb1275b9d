#pragma once
// Manifest invariants, for writer and reader.

#include <string>

#include "train/checkpoint/manifest.h"

namespace quench {

// First violated rule, or empty:
// - data file names are plain ([A-Za-z0-9._-], no leading dot), distinct, not the manifest's; ranks are distinct and <
// world_size;
// - tensor names are distinct, 1..512 bytes of UTF-8 without control characters; dimensions are in [0, 2^48];
// - the shards of a tensor tile its rows in ascending order, each with the size of its rows;
// - the shards in a data file tile it from header end to file end, so that every byte is hashed.
[[nodiscard]] std::string find_manifest_fault(const Manifest& manifest);

[[nodiscard]] bool is_plain_file_name(std::string_view name) noexcept;

}  // namespace quench
