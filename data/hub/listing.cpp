#include "data/hub/listing.h"

#include <algorithm>
#include <set>

#include "core/json/json.h"
#include "core/system/check.h"
#include "core/system/printable.h"
#include "data/hub/hub_name.h"

namespace quench::hub {
namespace {

constexpr std::size_t kMaxName = 255 - std::string_view(".incomplete").size(), kMaxPath = 1024;
constexpr std::size_t kMaxFiles = 200'000;

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

HubFile read_entry(const Json& entry, std::string_view source) {
  HubFile file{
      .path = entry.at("path").as_string(), .size = entry.at("size").as_uint(), .git_oid = entry.at("oid").as_string()};
  const std::string fault = path_fault(file.path);
  QUENCH_CHECK_AS(ErrorCode::corrupt, fault.empty(), "{} names a file \"{}\", which is refused: {}", source,
                  printable(file.path.substr(0, 200)), fault);
  if (const Json* lfs = entry.find("lfs"); lfs != nullptr && lfs->is_object()) {
    file.sha256 = lfs->at("oid").as_string();
    if (file.sha256.starts_with("sha256:")) file.sha256.erase(0, std::string_view("sha256:").size());
    file.size = lfs->at("size").as_uint();
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, is_hex(file.git_oid, 40) && (file.sha256.empty() || is_hex(file.sha256, 64)),
                  "{}: {} has no digest of 40 or 64 hexadecimal digits", source, file.path);
  QUENCH_CHECK_AS(ErrorCode::corrupt, file.size <= std::uint64_t{1} << 50, "{}: {} has {} bytes", source, file.path,
                  file.size);
  return file;
}

}  // namespace

std::string path_fault(std::string_view path) {
  if (path.empty()) return "it is empty";
  if (path.size() > kMaxPath) return fmt::format("it has more than {} bytes", kMaxPath);
  if (path.front() == '/') return "it is absolute";
  if (printable(path) != path || path.find_first_of("\n\t\\") != std::string_view::npos)
    return "it has control characters or backslashes";
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return "a part of it is empty, \".\" or \"..\"";
    if (part.size() > kMaxName) return fmt::format("a part of it has more than {} bytes", kMaxName);
    std::string lower(part);
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (lower == ".git") return "it is git's own";
    begin = end + 1;
  }
  if (path.starts_with(".cache/")) return "the folder .cache is the downloads' own";
  return {};
}

void read_tree_page(std::string_view text, std::string_view source, std::vector<HubFile>& files) {
  const Json page = Json::parse(text, {.source = source});
  QUENCH_CHECK_AS(ErrorCode::corrupt, page.is_array(), "{}: expected a JSON array of files, got {}", source,
                  page.type_name());
  for (const Json& entry : page.as_array()) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, entry.is_object(), "{}: expected an object for each file, got {}", source,
                    entry.type_name());
    if (entry.at("type").as_string() != "file") continue;
    files.push_back(read_entry(entry, source));
    QUENCH_CHECK_AS(ErrorCode::unsupported, files.size() <= kMaxFiles, "{} lists more than {} files", source,
                    kMaxFiles);
  }
}

std::string next_page(std::string_view link) {
  for (std::size_t at = 0; (at = link.find('<', at)) != std::string_view::npos;) {
    const std::size_t close = link.find('>', at);
    if (close == std::string_view::npos) return {};
    std::string_view url = link.substr(at + 1, close - at - 1);
    const std::size_t next = std::min(link.find('<', close), link.size());
    const std::string_view parameters = link.substr(close, next - close);
    at = next;
    if (parameters.find("rel=\"next\"") == std::string_view::npos &&
        parameters.find("rel=next") == std::string_view::npos)
      continue;
    if (const std::size_t scheme = url.find("://"); scheme != std::string_view::npos) {
      url.remove_prefix(scheme + 3);
      const std::size_t slash = url.find('/');
      if (slash == std::string_view::npos) return {};
      url.remove_prefix(slash);
    }
    const bool plain = std::ranges::all_of(url, [](unsigned char c) { return c > 0x20 && c < 0x7f; });
    return url.starts_with('/') && plain ? std::string(url) : std::string();
  }
  return {};
}

void require_distinct(const std::vector<HubFile>& files, std::string_view source) {
  std::set<std::string_view> paths;
  for (const HubFile& file : files)
    QUENCH_CHECK_AS(ErrorCode::corrupt, paths.insert(file.path).second, "{} lists {} twice", source, file.path);
  for (const HubFile& file : files)
    for (std::size_t slash = file.path.find('/'); slash != std::string::npos; slash = file.path.find('/', slash + 1))
      QUENCH_CHECK_AS(ErrorCode::corrupt, !paths.contains(std::string_view(file.path).substr(0, slash)),
                      "{} lists {} as a file and as a folder", source, file.path.substr(0, slash));
}

}  // namespace quench::hub
