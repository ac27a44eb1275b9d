#include "data/hub/push_api.h"

#include <algorithm>

#include "core/json/json.h"
#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/output_file.h"
#include "data/hub/base64.h"
#include "data/hub/hub_api.h"

namespace quench::hub {
namespace {

constexpr std::uint64_t kMaxRegularBytes = std::uint64_t{256} << 20;  // in the body of a commit
constexpr std::size_t kSampleBytes = 512;
constexpr std::size_t kPreuploadFiles = 256;

const std::vector<std::string>& json_headers() {
  static const std::vector<std::string> headers = {"Content-Type: application/json"};
  return headers;
}

HttpResponse post_json(HttpClient& client, const std::string& url, const Json& body) {
  return client.send({.method = "POST", .url = url, .headers = json_headers(), .body = body.dump()});
}

void create_repository(HttpClient& client, const HubName& name, bool is_private) {
  const std::size_t slash = name.id.find('/');
  Json request = Json::Object{{"organization", name.id.substr(0, slash)},
                              {"name", name.id.substr(slash + 1)},
                              {"type", std::string(to_string(name.type))}};
  if (is_private) request.set("private", true);  // else as the organization has it
  const HttpResponse response = post_json(client, client.settings().endpoint + "/api/repos/create", request);
  QUENCH_CHECK_AS(ErrorCode::failed, response.status != 409,
                  "{} exists already, and the access token of {} may not see it; use one with access to it",
                  name.text(), client.settings().token.source());
  require_success(client, name, response, "creation of the repository");
}

void create_branch(HttpClient& client, const HubName& name) {
  const std::string url =
      fmt::format("{}/branch/{}", RepoUrls(client.settings(), name).api, escape_segment(name.revision));
  require_success(client, name, post_json(client, url, Json::object()),
                  fmt::format("creation of branch {}", name.revision));
}

Json upload_question(const std::vector<PushFile>& files, std::size_t begin, std::size_t end) {
  Json list = Json::array();
  for (std::size_t i = begin; i < end; ++i) {
    // The first bytes: the hub recognizes binary files by them.
    const std::string sample = read_beginning(files[i].file, kSampleBytes);
    list.push_back(Json::Object{{"path", files[i].path}, {"size", files[i].size}, {"sample", base64(sample)}});
  }
  return Json::Object{{"files", std::move(list)}};
}

}  // namespace

RevisionState ensure_revision(HttpClient& client, const HubName& name, bool is_private) {
  const std::string url =
      fmt::format("{}/revision/{}", RepoUrls(client.settings(), name).api, escape_segment(name.revision));
  const HttpResponse response = client.send({.url = url});
  RevisionState state = RevisionState::existing;
  if (response.status == 404 && response.header("x-error-code") != "RevisionNotFound") {
    create_repository(client, name, is_private);
    state = RevisionState::new_repository;
    if (name.revision == kDefaultRevision) return state;
  } else if (response.status != 404) {
    require_success(client, name, response, "the revision");
    return state;
  }
  create_branch(client, name);
  return state == RevisionState::existing ? RevisionState::new_branch : state;
}

void ask_upload_modes(HttpClient& client, const HubName& name, std::vector<PushFile>& files) {
  const std::string url =
      fmt::format("{}/preupload/{}", RepoUrls(client.settings(), name).api, escape_segment(name.revision));
  for (std::size_t begin = 0; begin < files.size(); begin += kPreuploadFiles) {
    const std::size_t end = std::min(files.size(), begin + kPreuploadFiles);
    const HttpResponse response = post_json(client, url, upload_question(files, begin, end));
    require_success(client, name, response, "the question how files are stored");
    const Json answer = Json::parse(response.body, {.source = url});
    std::size_t answered = 0;
    for (const Json& entry : answer.at("files").as_array()) {
      const auto file = std::ranges::find(files, entry.at("path").as_string(), &PushFile::path);
      if (file == files.end()) continue;
      file->is_lfs = entry.at("uploadMode").as_string() == "lfs" && file->size > 0;  // storage takes no empty contents
      const Json* ignored = entry.find("shouldIgnore");
      file->ignored = ignored != nullptr && ignored->is_bool() && ignored->as_bool();
      ++answered;
    }
    QUENCH_CHECK_AS(ErrorCode::corrupt, answered == end - begin, "{}: the answer has {} of {} files", url, answered,
                    end - begin);
  }
}

CommitResult commit_files(HttpClient& client, const HubName& name, const std::vector<const PushFile*>& files,
                          const CommitText& text) {
  std::string lines =
      Json(Json::Object{{"key", "header"}, {"value", Json::Object{{"summary", text.message}, {"description", ""}}}})
          .dump() +
      "\n";
  for (const PushFile* file : files) {
    Json value = Json::Object{{"path", file->path}};
    if (file->is_lfs) {
      value.set("algo", "sha256");
      value.set("oid", file->digest);
      value.set("size", file->size);
    } else {
      value.set("content", base64(read_file(file->file, kMaxRegularBytes)));
      value.set("encoding", "base64");
    }
    lines += Json(Json::Object{{"key", file->is_lfs ? "lfsFile" : "file"}, {"value", std::move(value)}}).dump() + "\n";
  }
  const HttpRequest request{.method = "POST",
                            .url = fmt::format("{}/commit/{}{}", RepoUrls(client.settings(), name).api,
                                               escape_segment(name.revision), text.as_request ? "?create_pr=1" : ""),
                            .headers = {"Content-Type: application/x-ndjson"},
                            .body = std::move(lines)};
  // A repeated commit changes nothing; a repeated request would be a second one.
  const HttpResponse response = text.as_request ? client.send_once(request) : client.send(request);
  require_success(client, name, response, "the commit");
  const Json answer = Json::parse(response.body, {.source = shown_url(request.url)});
  const auto member = [&](const char* key) {
    const Json* found = answer.is_object() ? answer.find(key) : nullptr;
    return found != nullptr && found->is_string() ? found->as_string() : std::string();
  };
  return {.commit = member("commitOid"), .url = member(text.as_request ? "pullRequestUrl" : "commitUrl")};
}

}  // namespace quench::hub
