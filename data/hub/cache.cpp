#include "data/hub/cache.h"

#include "core/system/check.h"
#include "core/system/file.h"
#include "data/hub/settings.h"

namespace quench::hub {
namespace {

namespace fs = std::filesystem;

std::string folder_name(const HubName& name) {
  std::string id = name.id;
  if (const std::size_t slash = id.find('/'); slash != std::string::npos) id.replace(slash, 1, "--");
  return fmt::format("{}s--{}", to_string(name.type), id);
}

}  // namespace

CacheFolder::CacheFolder(const fs::path& cache, const HubName& name)
    : repo(cache / folder_name(name)), locks(cache / ".locks" / folder_name(name)) {}

fs::path cached_snapshot(const fs::path& cache, const HubName& name) {
  if (cache.empty()) return {};
  const CacheFolder folder(cache, name);
  std::string commit = name.revision;
  if (!is_commit(commit)) {
    try {
      commit = read_file(folder.ref(name.revision), 4096);
    } catch (const Error&) {
      return {};
    }
    while (!commit.empty() && (commit.back() == '\n' || commit.back() == ' ')) commit.pop_back();
    if (!is_commit(commit)) return {};
  }
  std::error_code ignored;
  fs::path snapshot = folder.snapshot(commit);
  return fs::is_directory(snapshot, ignored) ? snapshot : fs::path();
}

std::string local_path(const std::string& text) {
  const std::optional<HubName> name = find_hub_name(text);
  if (!name) return text;
  const fs::path snapshot = cached_snapshot(cache_folder(), *name);
  return snapshot.empty() ? text : snapshot.string();
}

std::string require_local_path(const std::string& text) {
  if (!text.starts_with(kScheme)) return text;
  const HubName name = parse_hub_name(text);
  const fs::path cache = cache_folder(), snapshot = cached_snapshot(cache, name);
  QUENCH_CHECK_AS(ErrorCode::not_found, !snapshot.empty(),
                  "{} is not in the cache of the Hugging Face Hub ({}); download it with `quench pull {}`", text,
                  cache.string(), text);
  return snapshot.string();
}

}  // namespace quench::hub
