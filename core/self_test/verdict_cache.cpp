#include "core/self_test/verdict_cache.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdlib>

#include "core/self_test/cases.h"
#include "core/system/file.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxBytes = 1 << 20;

fs::path file_of(const fs::path& folder, const Json& key) {
  const std::string text = key.dump();
  return folder / fmt::format("self-test-{:016x}.json", XXH3_64bits(text.data(), text.size()));
}

// True for a file of this user or root that others cannot write. Links are followed.
bool is_trusted(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return false;
  return (info.st_uid == ::geteuid() || info.st_uid == 0) && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

FamilyStatus parse_status(const std::string& text) {
  for (const FamilyStatus status : {FamilyStatus::passed, FamilyStatus::failed, FamilyStatus::not_used})
    if (text == to_string(status)) return status;
  QUENCH_FAIL(ErrorCode::corrupt, "status '{}'", text);
}

}  // namespace

fs::path verdict_folder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache != nullptr && *cache == '/') return fs::path(cache) / "quench";
  if (home != nullptr && *home != '\0') return fs::path(home) / ".cache" / "quench";
  return {};
}

std::optional<SelfTestReport> read_verdict(const fs::path& folder, const Json& key) noexcept {
  try {
    if (folder.empty() || !is_trusted(folder) || !is_trusted(file_of(folder, key))) return std::nullopt;
    const Json json = Json::parse(read_file(file_of(folder, key), kMaxBytes));
    if (json.at("key") != key) return std::nullopt;
    SelfTestReport report;
    for (const Json& family : json.at("report").at("families").as_array())
      report.families.push_back({family.at("name").as_string(), parse_status(family.at("status").as_string()),
                                 family.at("detail").as_string()});
    const std::span<const self_test::Case> cases = self_test::cases();
    if (report.families.size() != cases.size()) return std::nullopt;
    for (std::size_t i = 0; i < cases.size(); ++i)
      if (report.families[i].name != cases[i].name) return std::nullopt;
    return report;
  } catch (...) {
    return std::nullopt;
  }
}

bool write_verdict(const fs::path& folder, const Json& key, const SelfTestReport& report) noexcept {
  try {
    if (folder.empty()) return false;
    fs::create_directories(folder);
    fs::permissions(folder, fs::perms::group_write | fs::perms::others_write, fs::perm_options::remove);
    write_file_atomically(file_of(folder, key),
                          Json(Json::Object{{"key", key}, {"report", to_json(report)}}).dump(2) + "\n");
    return true;
  } catch (...) {
    return false;
  }
}

Json to_json(const SelfTestReport& report) {
  Json families = Json::array();
  for (const FamilyResult& family : report.families)
    families.push_back(
        Json::Object{{"name", family.name}, {"status", to_string(family.status)}, {"detail", family.detail}});
  return Json(Json::Object{{"families", std::move(families)}, {"seconds", report.seconds}});
}

}  // namespace quench
