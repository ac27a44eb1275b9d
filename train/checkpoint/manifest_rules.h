#pragma once
// What must hold between the records of a manifest, for the writer and the reader alike.

#include <string>

#include "train/checkpoint/manifest.h"

namespace quench {

// Empty when all rules hold, else the first breach:
//  - names of data files are plain ([A-Za-z0-9._-], no leading dot), distinct, not the manifest's; ranks are distinct
//    and below world_size;
//  - names of tensors are distinct, 1..512 bytes of UTF-8 without control characters; dimensions lie in [0, 2^48];
//  - the shards of a tensor tile its rows in ascending order, each of the size its rows have;
//  - the shards in a data file tile it from the end of its header to its end, so that every byte has a hash.
[[nodiscard]] std::string find_manifest_fault(const Manifest& manifest);

// True for the names that data files may have.
[[nodiscard]] bool is_plain_file_name(std::string_view name) noexcept;

}  // namespace quench
