#include "data/hub/hub_api.h"

#include <algorithm>

#include "core/json/json.h"
#include "core/system/check.h"

namespace quench::hub {
namespace {

constexpr int kMaxPages = 10'000;

std::string token_remedy(const HubSettings& settings) {
  if (settings.token.empty())
    return fmt::format("no access token is set: put one of {}/settings/tokens into HF_TOKEN or {}", settings.endpoint,
                       settings.token_file.empty() ? "$HF_HOME/token" : settings.token_file.string());
  if (!settings.may_send_token())
    return "the access token is not sent to this endpoint, which has no TLS; use https:// in HF_ENDPOINT";
  return fmt::format("the access token of {} was sent", settings.token.source());
}

// The server's own words, in brackets; empty: none.
std::string server_words(const HttpClient& client, const HttpResponse& response) {
  constexpr std::size_t kMost = 300;
  std::string text(response.header("x-error-message"));
  if (text.empty()) {
    try {
      const Json body = Json::parse(response.body);
      if (const Json* error = body.is_object() ? body.find("error") : nullptr; error != nullptr && error->is_string())
        text = error->as_string();
    } catch (const Error&) {
    }
  }
  std::ranges::replace(text, '\n', ' ');
  text = client.settings().token.redact(text.substr(0, kMost));
  return text.empty() ? text : fmt::format(" ({})", text);
}

}  // namespace

RepoUrls::RepoUrls(const HubSettings& settings, const HubName& name) {
  const bool dataset = name.type == RepoType::dataset;
  api = fmt::format("{}/api/{}/{}", settings.endpoint, dataset ? "datasets" : "models", name.id);
  page = fmt::format("{}/{}{}", settings.endpoint, dataset ? "datasets/" : "", name.id);
}

std::string RepoUrls::file(std::string_view commit, std::string_view path) const {
  return fmt::format("{}/resolve/{}/{}", page, escape_segment(commit), escape_path(path));
}

void require_success(const HttpClient& client, const HubName& name, const HttpResponse& response,
                     std::string_view what) {
  if (response.is_success()) return;
  const HubSettings& settings = client.settings();
  const std::string_view error = response.header("x-error-code");
  const std::string words = server_words(client, response), remedy = token_remedy(settings);
  const std::string page = RepoUrls(settings, name).page;
  const std::string repo = name.text();
  if (error == "GatedRepo")
    QUENCH_FAIL(ErrorCode::failed, "{}: the repository is gated: accept its terms at {} with your account; {}{}", repo,
                page, remedy, words);
  if (error == "RevisionNotFound")
    QUENCH_FAIL(ErrorCode::not_found, "{}: there is no branch, tag or commit \"{}\"; {}/refs lists them{}", repo,
                name.revision, RepoUrls(settings, name).api, words);
  if (error == "EntryNotFound") QUENCH_FAIL(ErrorCode::not_found, "{}: there is no file {}{}", repo, what, words);
  if (error == "RepoNotFound" || response.status == 404)
    QUENCH_FAIL(ErrorCode::not_found, "{}: {} has no such {}, or it is private; check the name{}; {}{}", repo,
                settings.endpoint, to_string(name.type),
                name.type == RepoType::model ? " (of a data set it is hf:datasets/ORG/NAME)" : "", remedy, words);
  if (response.status == 401)
    QUENCH_FAIL(ErrorCode::failed, "{}: {}: the hub asks for a valid access token; {}{}", repo, what, remedy, words);
  if (response.status == 403)
    QUENCH_FAIL(ErrorCode::failed, "{}: {}: not allowed; {}; it needs the permission for this repository{}", repo, what,
                remedy, words);
  QUENCH_FAIL(ErrorCode::io, "{}: {}: {} answered with status {}{}", repo, what, settings.endpoint, response.status,
              words);
}

std::string resolve_revision(HttpClient& client, const HubName& name) {
  const std::string url =
      fmt::format("{}/revision/{}", RepoUrls(client.settings(), name).api, escape_segment(name.revision));
  const HttpResponse response = client.send({.url = url});
  require_success(client, name, response, "the revision");
  const Json info = Json::parse(response.body, {.source = url});
  const Json* commit = info.is_object() ? info.find("sha") : nullptr;
  QUENCH_CHECK_AS(ErrorCode::corrupt, commit != nullptr && commit->is_string() && is_commit(commit->as_string()),
                  "{}: the answer has no commit (sha); is HF_ENDPOINT a hub?", url);
  return commit->as_string();
}

std::vector<HubFile> list_files(HttpClient& client, const HubName& name, std::string_view commit) {
  const RepoUrls urls(client.settings(), name);
  // Pages are paths of the endpoint's host, whatever host a Link header names.
  const std::string& endpoint = client.settings().endpoint;
  const std::string origin = endpoint.substr(0, endpoint.find('/', endpoint.find("://") + 3));
  std::string url = fmt::format("{}/tree/{}?recursive=true", urls.api, commit);
  std::vector<HubFile> files;
  for (int page = 0; !url.empty(); ++page) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, page < kMaxPages, "{}: more than {} pages of files", name.text(), kMaxPages);
    const HttpResponse response = client.send({.url = url});
    require_success(client, name, response, "the list of files");
    read_tree_page(response.body, shown_url(url), files);
    const std::string next = next_page(response.header("link"));
    url = next.empty() ? std::string() : origin + next;
  }
  require_distinct(files, name.text());
  return files;
}

}  // namespace quench::hub
