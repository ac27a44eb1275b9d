#include "data/hub/push.h"

#include <algorithm>

#include "core/json/json.h"
#include "core/system/check.h"
#include "data/hub/digest.h"
#include "data/hub/hub_api.h"
#include "data/hub/push_api.h"

namespace quench::hub {
namespace {

void require_token(const HubSettings& settings) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, !settings.offline, "HF_HUB_OFFLINE is set; unset it to push");
  QUENCH_CHECK_AS(ErrorCode::bad_config, !settings.token.empty(),
                  "a push needs an access token that may write: put one of {}/settings/tokens into HF_TOKEN or {}",
                  settings.endpoint, settings.token_file.string());
  QUENCH_CHECK_AS(ErrorCode::bad_config, settings.may_send_token(),
                  "the access token is not sent to {}, which has no TLS; use https:// in HF_ENDPOINT",
                  settings.endpoint);
}

// Before anything is uploaded.
void require_private(HttpClient& client, const HubName& name) {
  const RepoUrls urls(client.settings(), name);
  const std::string url = fmt::format("{}/revision/{}", urls.api, escape_segment(name.revision));
  const HttpResponse response = client.send({.url = url});
  require_success(client, name, response, "the repository");
  const Json info = Json::parse(response.body, {.source = url});
  const Json* found = info.is_object() ? info.find("private") : nullptr;
  QUENCH_CHECK_AS(ErrorCode::failed, found != nullptr && found->is_bool() && found->as_bool(),
                  "--private: {} exists and is public; nothing was uploaded. Make it private at {}/settings, or omit "
                  "--private",
                  name.text(), urls.page);
}

std::vector<PushFile> local_files(const std::filesystem::path& folder, const std::vector<std::string>& names) {
  std::vector<PushFile> files;
  for (const std::string& name : names) {
    const std::filesystem::path file = folder / name;
    files.push_back({.path = name, .file = file, .size = std::filesystem::file_size(file)});
  }
  return files;
}

}  // namespace

PushResult push(const HubSettings& settings, const HubName& name, const std::filesystem::path& folder,
                const std::vector<std::string>& names, const PushOptions& options) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, name.id.find('/') != std::string::npos,
                  "{} has no organization or user; a push goes to hf:ORG/NAME", name.text());
  QUENCH_CHECK_AS(ErrorCode::bad_config, !is_commit(name.revision), "{}: a push goes to a branch, not to a commit",
                  name.text());
  require_token(settings);
  HttpClient client(settings, options.stop);
  PushResult result;
  const RevisionState state = ensure_revision(client, name, options.is_private);
  result.new_repository = state == RevisionState::new_repository;
  if (options.is_private) require_private(client, name);

  std::vector<PushFile> files = local_files(folder, names);
  ask_upload_modes(client, name, files);
  const std::vector<HubFile> there = list_files(client, name, resolve_revision(client, name));
  std::vector<const PushFile*> changed, large;
  std::uint64_t total = 0;
  for (PushFile& file : files) {
    if (const int reason = options.stop ? options.stop() : 0; reason != 0) throw Stopped(reason);
    if (file.ignored) {
      result.ignored.push_back(file.path);
      continue;
    }
    file.digest = file_digest(file.file, file.is_lfs ? DigestKind::sha256 : DigestKind::git_blob);
    const auto same = std::ranges::find(there, file.path, &HubFile::path);
    if (same != there.end() && same->etag() == file.digest) {
      result.unchanged.push_back(file.path);
      continue;
    }
    result.sent.push_back(file.path);
    changed.push_back(&file);
    if (!file.is_lfs) continue;
    large.push_back(&file);
    total += file.size;
  }
  result.url = RepoUrls(settings, name).page;
  if (changed.empty()) return result;
  upload_lfs(client, name, large, [&](std::uint64_t done) {
    if (options.progress) options.progress(done, total);
  });
  const CommitResult commit = commit_files(client, name, changed, {options.message, options.as_request});
  result.commit = commit.commit;
  if (!commit.url.empty()) result.url = commit.url;
  return result;
}

}  // namespace quench::hub
