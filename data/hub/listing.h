#pragma once
// Files of a repository at one commit, as the hub's tree interface lists them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/hub/digest.h"

namespace quench::hub {

struct HubFile {
  std::string path;  // relative, checked by path_fault()
  std::uint64_t size = 0;
  std::string git_oid;   // SHA-1 of the blob; of a file in LFS that of its pointer
  std::string sha256{};  // digest of a file in LFS; else empty

  // Name of its blob in a cache.
  [[nodiscard]] const std::string& etag() const noexcept { return sha256.empty() ? git_oid : sha256; }
  [[nodiscard]] DigestKind digest_kind() const noexcept {
    return sha256.empty() ? DigestKind::git_blob : DigestKind::sha256;
  }
};

struct Listing {
  std::string commit;
  std::vector<HubFile> files;  // in the order of the hub
};

// Why a name from the hub is no path below a folder: absolute, "..", control characters, .git, too long, ...; empty:
// none.
[[nodiscard]] std::string path_fault(std::string_view path);

// Appends the files of a page; folders are left out. Throws corrupt for anything but the tree interface's JSON, hostile
// names and digests that are none. `source`: for messages.
void read_tree_page(std::string_view text, std::string_view source, std::vector<HubFile>& files);

// Path and query of the next page in a Link header (RFC 8288), without scheme and host; empty: the last one.
[[nodiscard]] std::string next_page(std::string_view link_header);

// Throws corrupt for a path that occurs twice, or is a file and a folder.
void require_distinct(const std::vector<HubFile>& files, std::string_view source);

}  // namespace quench::hub
