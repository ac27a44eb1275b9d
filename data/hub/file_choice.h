#pragma once
// Files of a repository that are downloaded: by patterns, or those that a program needs.

#include <string>
#include <utility>
#include <vector>

#include "data/hub/hub_name.h"
#include "data/hub/listing.h"

namespace quench::hub {

// Globs as `hf download` reads them: * matches slashes too; "folder/" is all below it.
struct FilePatterns {
  std::vector<std::string> include{};  // empty: all
  std::vector<std::string> exclude{};
};

struct FileChoice {
  std::vector<HubFile> files;
  // Reason and files left out without a pattern asking for it: "weights in PyTorch's pickle format" and so on.
  std::vector<std::pair<std::string, std::vector<HubFile>>> left_out{};
};

// Without include patterns, of a model: next to safetensors the same weights in other formats are left out. Throws
// bad_config for patterns that match nothing, and where several GGUF files are weights to choose from.
[[nodiscard]] FileChoice choose_files(const std::vector<HubFile>& files, const HubName& name,
                                      const FilePatterns& patterns);

}  // namespace quench::hub
