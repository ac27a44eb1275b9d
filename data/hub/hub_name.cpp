#include "data/hub/hub_name.h"

#include <algorithm>
#include <cctype>

#include "core/system/check.h"

namespace quench::hub {
namespace {

constexpr std::string_view kDatasetPrefix = "datasets/";
constexpr std::size_t kMaxId = 96;  // as the hub allows
constexpr std::size_t kMaxRevision = 250;

// Empty: none.
std::string id_fault(std::string_view id) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  };
  if (id.empty()) return "the name is empty";
  if (id.size() > kMaxId) return fmt::format("the name has more than {} characters", kMaxId);
  if (!std::ranges::all_of(id, allowed)) return "names have letters, digits, '-', '_' and '.'";
  if (std::ranges::count(id, '/') > 1) return "a name has one '/'";
  std::size_t begin = 0;
  while (begin <= id.size()) {
    const std::size_t end = std::min(id.find('/', begin), id.size());
    const std::string_view part = id.substr(begin, end - begin);
    if (part.empty()) return "a part of the name is empty";
    if (part.front() == '.' || part.front() == '-' || part.back() == '.' || part.back() == '-')
      return "parts of names do not begin or end with '.' or '-'";
    if (part.find("..") != std::string_view::npos || part.find("--") != std::string_view::npos)
      return "names have no '..' and no '--'";
    begin = end + 1;
  }
  return {};
}

std::string revision_fault(std::string_view revision) {
  constexpr std::string_view kForbidden = " ~^:?*[\\";  // by git-check-ref-format(1)
  const auto bad = [&](unsigned char c) {
    return c < 0x20 || c >= 0x7f || kForbidden.find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (revision.empty()) return "the revision is empty";
  if (revision.size() > kMaxRevision) return fmt::format("the revision has more than {} characters", kMaxRevision);
  if (std::ranges::any_of(revision, bad)) return "a revision is a branch, a tag or a commit";
  if (revision.front() == '/' || revision.front() == '.' || revision.front() == '-' || revision.back() == '/' ||
      revision.find("..") != std::string_view::npos || revision.find("/.") != std::string_view::npos ||
      revision.find("//") != std::string_view::npos)
    return "a revision is a branch, a tag or a commit";
  return {};
}

// The fault, or empty and `name` is set.
std::string read_name(std::string_view text, HubName& name) {
  if (text.starts_with(kScheme)) text.remove_prefix(kScheme.size());
  if (text.starts_with("//")) text.remove_prefix(2);
  if (text.starts_with(kDatasetPrefix)) {
    name.type = RepoType::dataset;
    text.remove_prefix(kDatasetPrefix.size());
  }
  const std::size_t at = text.find('@');
  name.id = text.substr(0, at);
  if (std::string fault = id_fault(name.id); !fault.empty()) return fault;
  if (at == std::string_view::npos) return {};
  name.revision = text.substr(at + 1);
  return revision_fault(name.revision);
}

}  // namespace

std::string_view to_string(RepoType type) noexcept {
  return type == RepoType::model ? "model" : "dataset";
}

RepoType require_repo_type(std::string_view word, std::string_view option) {
  for (const RepoType type : {RepoType::model, RepoType::dataset})
    if (word == to_string(type)) return type;
  QUENCH_FAIL(ErrorCode::bad_config, "{} '{}' is unknown; known: model, dataset", option, word);
}

std::string HubName::text() const {
  return fmt::format("{}{}{}{}{}", kScheme, type == RepoType::dataset ? kDatasetPrefix : "", id,
                     revision == kDefaultRevision ? "" : "@", revision == kDefaultRevision ? "" : revision);
}

HubName parse_hub_name(std::string_view text) {
  HubName name;
  const std::string fault = read_name(text, name);
  QUENCH_CHECK_AS(ErrorCode::bad_config, fault.empty(),
                  "\"{}\" names no repository of the Hugging Face Hub: {}; expected hf:ORG/NAME or "
                  "hf:ORG/NAME@REVISION, of a data set hf:datasets/ORG/NAME",
                  text, fault);
  return name;
}

std::optional<HubName> find_hub_name(std::string_view text) {
  HubName name;
  if (!text.starts_with(kScheme) || !read_name(text, name).empty()) return std::nullopt;
  return name;
}

void require_revision(std::string_view revision) {
  const std::string fault = revision_fault(revision);
  QUENCH_CHECK_AS(ErrorCode::bad_config, fault.empty(), "revision \"{}\": {}", revision, fault);
}

bool is_commit(std::string_view text) noexcept {
  return text.size() == 40 &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace quench::hub
