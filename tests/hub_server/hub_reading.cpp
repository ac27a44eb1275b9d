// Reading of HubServer: revisions, lists of files, contents.

#include <algorithm>
#include <chrono>

#include "tests/hub_server/hub_state.h"

namespace quench::testing {
namespace {

constexpr std::size_t kChunk = 64 << 10;

// "models" or "datasets", and a name, as a repository's key.
std::string repo_key(const std::string& kind, const std::string& name) {
  return kind == "datasets" ? "datasets/" + name : name;
}

Json tree_entry(const std::string& path, const ServedFile& file) {
  Json entry = Json::Object{{"type", "file"}, {"path", path}, {"size", file.content.size()}};
  entry.set("oid", git_blob_of(file.is_lfs ? "pointer to " + file.content : file.content));
  if (file.is_lfs)
    entry.set("lfs",
              Json::Object{{"oid", sha256_of(file.content)}, {"size", file.content.size()}, {"pointerSize", 134}});
  return entry;
}

}  // namespace

void ListeningServer::start() {
  server.set_keep_alive_timeout(1);
  port = server.bind_to_any_port("127.0.0.1");
  thread = std::thread([this] { server.listen_after_bind(); });
  while (!server.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void ListeningServer::finish() {
  server.stop();
  thread.join();
}

void HubServer::State::start() {
  add_reading();
  add_storage();
  add_writing();
  add_uploads();
  hub.start();
  storage_server.start();
}

void HubServer::State::finish() {
  hub.finish();
  storage_server.finish();
}

std::string HubServer::State::commit(const std::string& name, const std::string& revision, const Files& files,
                                     const std::string& message) {
  ServedRepo& repo = repos[name];
  const std::string id = git_blob_of(fmt::format("commit {}", ++commits));
  repo.revisions[revision] = id;
  repo.commits[id] = files;
  repo.message = message;
  for (const auto& [path, file] : files)
    if (file.is_lfs) storage[sha256_of(file.content)] = file.content;
  return id;
}

void HubServer::State::record(const httplib::Request& request, bool at_storage) {
  const std::lock_guard lock(mutex);
  requests.push_back({request.method, request.path, request.get_header_value("Range"),
                      request.get_header_value("Authorization"), at_storage});
}

void HubServer::State::refuse(httplib::Response& response, int status, const std::string& code) {
  response.status = status;
  if (!code.empty()) response.set_header("X-Error-Code", code);
  if (!behaviour.error_message.empty()) response.set_header("X-Error-Message", behaviour.error_message);
}

bool HubServer::State::admit(const httplib::Request& request, httplib::Response& response) {
  record(request, false);
  const std::lock_guard lock(mutex);
  if (behaviour.busy > 0) {
    --behaviour.busy;
    response.set_header("Retry-After", "0");
    refuse(response, 429, "");
    return false;
  }
  if (behaviour.failing > 0) {
    --behaviour.failing;
    refuse(response, 503, "");
    return false;
  }
  const std::string given = request.get_header_value("Authorization");
  if (behaviour.gated) {
    refuse(response, given.empty() ? 401 : 403, "GatedRepo");
    return false;
  }
  if (!behaviour.token.empty() && given != "Bearer " + behaviour.token) {
    refuse(response, 401, given.empty() ? "RepoNotFound" : "");
    return false;
  }
  return true;
}

const Files* HubServer::State::files_of(const std::string& name, const std::string& revision,
                                        httplib::Response& response) {
  const auto repo = repos.find(name);
  if (repo == repos.end()) {
    refuse(response, 404, "RepoNotFound");
    return nullptr;
  }
  const auto named = repo->second.revisions.find(revision);
  const auto found = repo->second.commits.find(named == repo->second.revisions.end() ? revision : named->second);
  if (found != repo->second.commits.end()) return &found->second;
  refuse(response, 404, "RevisionNotFound");
  return nullptr;
}

void HubServer::State::serve(const std::string& content, const httplib::Request& request, httplib::Response& response) {
  std::string bytes = content;
  Behaviour now;
  {
    const std::lock_guard lock(mutex);
    now = behaviour;
    if (behaviour.cut > 0) --behaviour.cut;
  }
  if (now.corrupt && !bytes.empty()) bytes[bytes.size() / 2] ^= 1;
  if (!now.ranges) const_cast<httplib::Request&>(request).ranges.clear();
  std::uint64_t given = 0;
  if (bytes.empty()) return response.set_content("", "application/octet-stream");
  response.set_content_provider(
      bytes.size(), "application/octet-stream",
      [this, bytes, now, given](std::size_t offset, std::size_t length, httplib::DataSink& sink) mutable {
        const std::uint64_t most = now.cut > 0 ? now.cut_after - std::min(now.cut_after, given) : kChunk;
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>({length, kChunk, most}));
        if (count > 0) sink.write(bytes.data() + offset, count);
        given += count;
        sent += count;
        if (now.chunk_pause_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(now.chunk_pause_ms));
        return now.cut == 0 || given < now.cut_after;
      });
}

void HubServer::State::add_reading() {
  hub.server.Get(R"(/api/(models|datasets)/([^/]+/[^/]+)/revision/(.+))", [this](const httplib::Request& request,
                                                                                 httplib::Response& response) {
    if (!admit(request, response)) return;
    const std::lock_guard lock(mutex);
    const std::string name = repo_key(request.matches[1], request.matches[2]);
    if (files_of(name, request.matches[3], response) == nullptr) return;
    const auto& revisions = repos[name].revisions;
    const auto found = revisions.find(request.matches[3]);
    const std::string id = found == revisions.end() ? std::string(request.matches[3]) : found->second;
    response.set_content(Json(Json::Object{{"id", name}, {"sha", id}, {"private", repos[name].is_private}}).dump(),
                         "application/json");
  });
  hub.server.Get(R"(/api/(models|datasets)/([^/]+/[^/]+)/tree/([^/]+))", [this](const httplib::Request& request,
                                                                                httplib::Response& response) {
    if (!admit(request, response)) return;
    const std::lock_guard lock(mutex);
    const std::string name = repo_key(request.matches[1], request.matches[2]);
    const Files* files = files_of(name, request.matches[3], response);
    if (files == nullptr) return;
    const std::string cursor = request.get_param_value("cursor");
    const std::size_t first = cursor.empty() ? 0 : std::stoul(cursor);
    Json page = Json::array();
    std::size_t index = 0;
    for (const auto& [path, file] : *files)
      if (const std::size_t i = index++; i >= first && i < first + behaviour.page)
        page.push_back(tree_entry(path, file));
    if (first + behaviour.page < files->size()) {
      // As of a mirror, whose links name the hub that it mirrors.
      response.set_header("Link", fmt::format("<https://hub.invalid{}?recursive=true&cursor={}>; rel=\"next\"",
                                              request.path, first + behaviour.page));
    } else if (!behaviour.extra_entry.empty()) {
      page.push_back(Json::parse(behaviour.extra_entry));
    }
    response.set_content(page.dump(), "application/json");
  });
  hub.server.Get(R"(/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+))",
                 [this](const httplib::Request& request, httplib::Response& response) {
                   if (!admit(request, response)) return;
                   std::string content;
                   {
                     const std::lock_guard lock(mutex);
                     const std::string name = std::string(request.matches[1]) + std::string(request.matches[2]);
                     const Files* files = files_of(name, request.matches[3], response);
                     if (files == nullptr) return;
                     const auto file = files->find(request.matches[4]);
                     if (file == files->end()) return refuse(response, 404, "EntryNotFound");
                     if (file->second.is_lfs)
                       return response.set_redirect(fmt::format("{}/content/{}?signature=secret-signature",
                                                                storage_server.url(), sha256_of(file->second.content)));
                     content = file->second.content;
                   }
                   serve(content, request, response);
                 });
}

void HubServer::State::add_storage() {
  storage_server.server.Get(R"(/content/([0-9a-f]{64}))",
                            [this](const httplib::Request& request, httplib::Response& response) {
                              record(request, true);
                              std::string content;
                              {
                                const std::lock_guard lock(mutex);
                                content = storage.at(request.matches[1]);
                              }
                              serve(content, request, response);
                            });
}

}  // namespace quench::testing
