#pragma once
// Folders of files to and from S3-compatible storage, file by file. What is there with the same digest is not
// transferred again.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/s3/s3_client.h"

namespace quench::s3 {

// What fetch_folder() or send_folder() has done.
struct FolderTransfer {
  std::vector<std::string> sent;       // or fetched
  std::vector<std::string> unchanged;  // as they were there
  std::uint64_t bytes = 0;             // sum over `sent`
};

// File that makes the others whole: transferred after them.
inline constexpr std::string_view kLastFile = "manifest.json";

// Downloads the objects below the client's address. A file appears under its name when it is complete and its digest
// right. Throws not_found if there are none, corrupt for names that are no path below a folder, bad_config for files of
// other content without `overwrite`, no_space; and the errors of S3Client.
FolderTransfer fetch_folder(S3Client& client, const std::filesystem::path& folder, bool overwrite,
                            const hub::StopPoll& stop);

// Uploads these files of a folder. Removes nothing.
FolderTransfer send_folder(S3Client& client, const std::filesystem::path& folder, std::vector<std::string> files,
                           std::uint64_t part_bytes, const hub::StopPoll& stop);

}  // namespace quench::s3
