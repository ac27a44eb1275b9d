#pragma once
// quench pull and quench push with addresses of S3-compatible storage.

#include <filesystem>
#include <string>
#include <vector>

namespace quench {

// Output of the two verbs.
struct S3VerbOptions {
  bool overwrite = false;
  bool dry_run = false;
  bool json = false;
  bool quiet = false;
};

[[nodiscard]] bool is_s3_address(const std::string& name);

// All objects below the address, into a folder.
void pull_from_s3(const std::string& address, const std::filesystem::path& folder, const S3VerbOptions& options);

// These files of a folder, and no other; of a checkpoint the manifest last.
void push_to_s3(const std::filesystem::path& folder, const std::vector<std::string>& files, const std::string& address,
                const S3VerbOptions& options);

}  // namespace quench
