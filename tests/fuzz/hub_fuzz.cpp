// Answers of the Hugging Face Hub on arbitrary bytes: a page of the list of files, a Link header and a name. A file
// that is accepted must stay below its folder. Anything but a quench::Error or a successful read is a bug.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/system/check.h"
#include "data/hub/hub_name.h"
#include "data/hub/listing.h"

namespace {

void require_below(const std::string& path) {
  const std::filesystem::path whole = (std::filesystem::path("/root/folder") / path).lexically_normal();
  if (!whole.string().starts_with("/root/folder/") || path.find('\n') != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string next = quench::hub::next_page(text);
  if (!next.empty() && next.front() != '/') std::abort();
  if (const auto name = quench::hub::find_hub_name(text);
      name && quench::hub::parse_hub_name(name->text()).id != name->id)
    std::abort();
  try {
    std::vector<quench::hub::HubFile> files;
    quench::hub::read_tree_page(text, "page", files);
    for (const quench::hub::HubFile& file : files) require_below(file.path);
    quench::hub::require_distinct(files, "page");
  } catch (const quench::Error&) {
  }
  return 0;
}
