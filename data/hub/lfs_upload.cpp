// Uploads to large file storage: the batch interface of Git LFS, with the hub's transfers "basic" and "multipart".

#include <algorithm>
#include <charconv>
#include <map>

#include "core/json/json.h"
#include "core/system/check.h"
#include "core/system/log.h"
#include "data/hub/hub_api.h"
#include "data/hub/push_api.h"

namespace quench::hub {
namespace {

constexpr std::size_t kBatchObjects = 256;
constexpr std::string_view kMediaType = "application/vnd.git-lfs+json";

std::vector<std::string> media_headers() {
  return {fmt::format("Accept: {}", kMediaType), fmt::format("Content-Type: {}", kMediaType)};
}

// Header lines of an action; numbers of parts and their size are none.
std::vector<std::string> action_headers(const Json& action) {
  std::vector<std::string> lines;
  const Json* headers = action.find("header");
  if (headers == nullptr || !headers->is_object()) return lines;
  for (const auto& [name, value] : headers->as_object())
    if (value.is_string() && name.find_first_of("\r\n:") == std::string::npos &&
        value.as_string().find_first_of("\r\n") == std::string::npos)
      lines.push_back(fmt::format("{}: {}", name, value.as_string()));
  return lines;
}

// Upload of one file.
class LfsUpload {
 public:
  LfsUpload(HttpClient& client, const HubName& name, const PushFile& file, std::function<void(std::uint64_t)> sent)
      : client_(client), name_(name), file_(file), sent_(std::move(sent)) {}

  void run(const Json& actions) {
    const Json& upload = actions.at("upload");
    if (const std::map<int, std::string> parts = part_urls(upload); !parts.empty())
      send_parts(upload, parts);
    else
      (void)put(upload.at("href").as_string(), action_headers(upload), {file_.file, 0, file_.size});
    const Json* verify = actions.find("verify");
    if (verify == nullptr || !verify->is_object()) return;
    std::vector<std::string> headers = action_headers(*verify);
    for (std::string& line : media_headers()) headers.push_back(std::move(line));
    const HttpResponse response =
        client_.send({.method = "POST",
                      .url = verify->at("href").as_string(),
                      .headers = std::move(headers),
                      .body = Json(Json::Object{{"oid", file_.digest}, {"size", file_.size}}).dump()});
    require_success(client_, name_, response, fmt::format("the check of {}", file_.path));
  }

 private:
  // URLs by number, of a transfer in parts.
  static std::map<int, std::string> part_urls(const Json& upload) {
    std::map<int, std::string> parts;
    const Json* headers = upload.find("header");
    if (headers == nullptr || !headers->is_object() || headers->find("chunk_size") == nullptr) return parts;
    for (const auto& [name, value] : headers->as_object()) {
      int number = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
      if (error == std::errc() && end == name.data() + name.size()) parts[number] = value.as_string();
    }
    return parts;
  }

  void send_parts(const Json& upload, const std::map<int, std::string>& parts) {
    const Json& size = upload.at("header").at("chunk_size");
    std::uint64_t bytes = 0;
    if (size.is_string())
      std::from_chars(size.as_string().data(), size.as_string().data() + size.as_string().size(), bytes);
    else
      bytes = size.as_uint();
    QUENCH_CHECK_AS(ErrorCode::corrupt, bytes > 0 && parts.size() == (file_.size + bytes - 1) / bytes,
                    "{}: the hub asks for {} parts of {} bytes of a file of {} bytes", file_.path, parts.size(), bytes,
                    file_.size);
    Json done = Json::array();
    std::uint64_t offset = 0;
    for (const auto& [number, url] : parts) {
      const std::uint64_t count = std::min(bytes, file_.size - offset);
      const HttpResponse response = put(url, {}, {file_.file, offset, count});
      done.push_back(Json::Object{{"partNumber", number}, {"etag", std::string(response.header("etag"))}});
      offset += count;
    }
    const HttpResponse response =
        client_.send({.method = "POST",
                      .url = upload.at("href").as_string(),
                      .headers = media_headers(),
                      .body = Json(Json::Object{{"oid", file_.digest}, {"parts", std::move(done)}}).dump()});
    require_success(client_, name_, response, fmt::format("the end of the upload of {}", file_.path));
  }

  HttpResponse put(const std::string& url, std::vector<std::string> headers, FilePart part) {
    const std::uint64_t offset = part.offset;
    HttpResponse response = client_.send({.method = "PUT",
                                          .url = url,
                                          .headers = std::move(headers),
                                          .file = std::move(part),
                                          .sent = [&](std::uint64_t bytes) { sent_(offset + bytes); }});
    require_success(client_, name_, response, fmt::format("the upload of {}", file_.path));
    return response;
  }

  HttpClient& client_;
  const HubName& name_;
  const PushFile& file_;
  std::function<void(std::uint64_t)> sent_;
};

Json batch_request(const std::vector<const PushFile*>& files, const HubName& name) {
  Json objects = Json::array();
  for (const PushFile* file : files) objects.push_back(Json::Object{{"oid", file->digest}, {"size", file->size}});
  return Json::Object{{"operation", "upload"},
                      {"transfers", Json::Array{"basic", "multipart"}},
                      {"objects", std::move(objects)},
                      {"hash_algo", "sha256"},
                      {"ref", Json::Object{{"name", name.revision}}}};
}

}  // namespace

void upload_lfs(HttpClient& client, const HubName& name, const std::vector<const PushFile*>& files,
                const std::function<void(std::uint64_t)>& sent) {
  const std::string url = RepoUrls(client.settings(), name).page + ".git/info/lfs/objects/batch";
  std::uint64_t before = 0;
  for (std::size_t begin = 0; begin < files.size(); begin += kBatchObjects) {
    const std::vector<const PushFile*> part(
        files.begin() + static_cast<std::ptrdiff_t>(begin),
        files.begin() + static_cast<std::ptrdiff_t>(std::min(files.size(), begin + kBatchObjects)));
    const HttpResponse response = client.send(
        {.method = "POST", .url = url, .headers = media_headers(), .body = batch_request(part, name).dump()});
    require_success(client, name, response, "the start of the upload");
    const Json answer = Json::parse(response.body, {.source = url});
    for (const PushFile* file : part) {
      const auto& objects = answer.at("objects").as_array();
      const auto object = std::ranges::find_if(
          objects, [&](const Json& one) { return one.is_object() && one.at("oid").as_string() == file->digest; });
      QUENCH_CHECK_AS(ErrorCode::corrupt, object != objects.end(), "{}: the answer lacks {}", url, file->path);
      if (const Json* error = object->find("error"); error != nullptr && error->is_object())
        QUENCH_FAIL(ErrorCode::failed, "{}: the hub refuses {}: {}", name.text(), file->path,
                    client.settings().token.redact(error->at("message").as_string().substr(0, 300)));
      const Json* actions = object->find("actions");
      if (actions != nullptr && actions->is_object() && actions->find("upload") != nullptr)
        LfsUpload(client, name, *file, [&](std::uint64_t bytes) { sent(before + bytes); }).run(*actions);
      else
        QUENCH_LOG_INFO("{} is in the hub's storage already", file->path);
      before += file->size;
      sent(before);
    }
  }
}

}  // namespace quench::hub
