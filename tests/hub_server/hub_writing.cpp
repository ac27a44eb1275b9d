// Writing of HubServer: creation of repositories and branches, uploads to large file storage, commits.

#include <sstream>

#include "tests/hub_server/hub_state.h"

namespace quench::testing {
namespace {

std::string decoded(const std::string& base64) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  unsigned value = 0;
  int bits = 0;
  for (const char c : base64) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    value = (value << 6) | static_cast<unsigned>(digit);
    bits += 6;
    if (bits >= 8) text += static_cast<char>(value >> (bits -= 8) & 0xff);
  }
  return text;
}

bool goes_to_lfs(const std::string& path, std::uint64_t bytes) {
  return path.ends_with(".safetensors") || path.ends_with(".gguf") || bytes > (std::uint64_t{10} << 20);
}

}  // namespace

// Actions of the objects that are missing.
std::string HubServer::State::batch(const Json& request) {
  Json objects = Json::array();
  for (const Json& wanted : request.at("objects").as_array()) {
    const std::string oid = wanted.at("oid").as_string();
    const std::uint64_t size = wanted.at("size").as_uint();
    Json object = Json::Object{{"oid", oid}, {"size", size}};
    if (!storage.contains(oid)) {
      const std::string content = fmt::format("{}/content/{}", storage_server.url(), oid);
      Json upload = Json::Object{{"href", content + "?signature=secret-signature"}};
      if (behaviour.part_bytes > 0) {
        upload.set("href", hub_url() + "/complete/" + oid);
        Json header = Json::Object{{"chunk_size", std::to_string(behaviour.part_bytes)}};
        for (std::uint64_t i = 0; i * behaviour.part_bytes < size; ++i)
          header.set(fmt::format("{:05}", i + 1), fmt::format("{}/{}?signature=secret-signature", content, i + 1));
        upload.set("header", std::move(header));
      }
      object.set("actions", Json::Object{{"upload", std::move(upload)},
                                         {"verify", Json::Object{{"href", hub_url() + "/verify"}}}});
    }
    objects.push_back(std::move(object));
  }
  return Json(Json::Object{{"transfer", behaviour.part_bytes > 0 ? "multipart" : "basic"},
                           {"objects", std::move(objects)}})
      .dump();
}

void HubServer::State::take_commit(const std::string& name, const std::string& revision, const std::string& lines,
                                   httplib::Response& response, bool as_request) {
  const Files* base = files_of(name, revision, response);
  if (base == nullptr) return;
  Files files = *base;
  std::string message;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    const Json entry = Json::parse(line);
    const std::string key = entry.at("key").as_string();
    const Json& value = entry.at("value");
    if (key == "header") message = value.at("summary").as_string();
    if (key == "file") files[value.at("path").as_string()] = {decoded(value.at("content").as_string()), false};
    if (key == "lfsFile") {
      const auto found = storage.find(value.at("oid").as_string());
      if (found == storage.end() || value.at("algo").as_string() != "sha256") return refuse(response, 400, "");
      files[value.at("path").as_string()] = {found->second, true};
    }
  }
  const std::string to = as_request ? "refs/pr/1" : revision;
  const std::string id = commit(name, to, files, message);
  Json answer = Json::Object{{"commitOid", id}, {"commitUrl", fmt::format("{}/{}/commit/{}", hub_url(), name, id)}};
  if (as_request) answer.set("pullRequestUrl", fmt::format("{}/{}/discussions/1", hub_url(), name));
  response.set_content(answer.dump(), "application/json");
}

void HubServer::State::add_writing() {
  httplib::Server& server = hub.server;
  server.Post("/api/repos/create", [this](const httplib::Request& request, httplib::Response& response) {
    if (!admit(request, response)) return;
    const Json body = Json::parse(request.body);
    const std::string name = body.at("organization").as_string() + "/" + body.at("name").as_string();
    const std::lock_guard lock(mutex);
    if (repos.contains(name)) return refuse(response, 409, "");
    commit(name, "main", {{".gitattributes", {"*.safetensors filter=lfs\n", false}}}, "initial commit");
    const Json* wish = body.find("private");
    repos[name].is_private = wish != nullptr && wish->as_bool() && !behaviour.public_only;
    response.set_content(Json(Json::Object{{"url", hub_url() + "/" + name}}).dump(), "application/json");
  });
  server.Post(R"(/api/models/([^/]+/[^/]+)/branch/([^/]+))",
              [this](const httplib::Request& request, httplib::Response& response) {
                if (!admit(request, response)) return;
                const std::lock_guard lock(mutex);
                const Files* files = files_of(request.matches[1], "main", response);
                if (files != nullptr) commit(request.matches[1], request.matches[2], Files(*files), "branch");
              });
  server.Post(R"(/api/models/([^/]+/[^/]+)/preupload/([^/]+))", [this](const httplib::Request& request,
                                                                       httplib::Response& response) {
    if (!admit(request, response)) return;
    Json files = Json::array();
    const Json body = Json::parse(request.body);
    for (const Json& file : body.at("files").as_array()) {
      const std::string path = file.at("path").as_string();
      (void)decoded(file.at("sample").as_string());
      files.push_back(Json::Object{{"path", path},
                                   {"uploadMode", goes_to_lfs(path, file.at("size").as_uint()) ? "lfs" : "regular"},
                                   {"shouldIgnore", false}});
    }
    response.set_content(Json(Json::Object{{"files", std::move(files)}}).dump(), "application/json");
  });
}

void HubServer::State::add_uploads() {
  httplib::Server& server = hub.server;
  server.Post(R"(/([^/]+/[^/]+)\.git/info/lfs/objects/batch)",
              [this](const httplib::Request& request, httplib::Response& response) {
                if (!admit(request, response)) return;
                const std::lock_guard lock(mutex);
                response.set_content(batch(Json::parse(request.body)), "application/vnd.git-lfs+json");
              });
  server.Post("/verify", [this](const httplib::Request& request, httplib::Response& response) {
    if (!admit(request, response)) return;
    const Json body = Json::parse(request.body);
    const std::lock_guard lock(mutex);
    const auto found = storage.find(body.at("oid").as_string());
    if (found == storage.end() || found->second.size() != body.at("size").as_uint()) refuse(response, 404, "");
  });
  server.Post(R"(/complete/([0-9a-f]{64}))", [this](const httplib::Request& request, httplib::Response& response) {
    record(request, false);
    const std::lock_guard lock(mutex);
    std::string content;
    const Json body = Json::parse(request.body);
    for (const Json& part : body.at("parts").as_array()) {
      const int number = static_cast<int>(part.at("partNumber").as_int());
      if (part.at("etag").as_string() != fmt::format("\"part-{}\"", number)) return refuse(response, 400, "");
      content += storage_parts[request.matches[1]][number];
    }
    if (sha256_of(content) != request.matches[1]) return refuse(response, 400, "");
    storage[request.matches[1]] = content;
  });
  server.Post(R"(/api/models/([^/]+/[^/]+)/commit/([^/]+))",
              [this](const httplib::Request& request, httplib::Response& response) {
                if (!admit(request, response)) return;
                const std::lock_guard lock(mutex);
                take_commit(request.matches[1], request.matches[2], request.body, response,
                            request.get_param_value("create_pr") == "1");
              });
  storage_server.server.Put(R"(/content/([0-9a-f]{64})(/(\d+))?)",
                            [this](const httplib::Request& request, httplib::Response& response) {
                              record(request, true);
                              const std::lock_guard lock(mutex);
                              if (behaviour.failing > 0) {
                                --behaviour.failing;
                                return refuse(response, 503, "");
                              }
                              if (!request.matches[3].matched) {
                                if (sha256_of(request.body) != request.matches[1]) return refuse(response, 400, "");
                                storage[request.matches[1]] = request.body;
                                return;
                              }
                              const int number = std::stoi(request.matches[3]);
                              storage_parts[request.matches[1]][number] = request.body;
                              response.set_header("ETag", fmt::format("\"part-{}\"", number));
                            });
}

}  // namespace quench::testing
