#include "tests/s3_server/s3_server.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "tests/s3_server/s3_signature.h"

namespace quench::testing {
namespace {

using Headers = std::map<std::string, std::string>;

struct Object {
  std::string content;
  Headers metadata;
};

struct Upload {
  std::string key;
  Headers metadata;
  std::map<int, std::string> parts;
  std::map<int, std::string> tags;
};

std::string tag_of(const std::string& content) {
  return "\"" + hex_sha256(content).substr(0, 32) + "\"";
}

Headers metadata_of(const httplib::Request& request) {
  Headers metadata;
  for (const auto& [name, value] : request.headers) {
    std::string lower = name;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (lower.starts_with("x-amz-meta-")) metadata[lower] = value;
  }
  return metadata;
}

}  // namespace

struct S3Server::State {
  mutable std::mutex mutex;
  std::map<std::string, Object> objects;
  std::map<std::string, Upload> uploads;
  S3Behaviour behaviour;
  std::vector<SeenS3Request> requests;
  std::multiset<std::string> arriving;
  int next_upload = 0;
  int port = 0;
  std::unique_ptr<httplib::Server> server;
  std::thread thread;

  // `told`: of the server's message.
  static void refuse(httplib::Response& response, int status, const std::string& code, const std::string& told = "no") {
    response.status = status;
    response.set_content(
        fmt::format("<?xml version=\"1.0\"?><Error><Code>{}</Code><Message>{}</Message></Error>", code, told),
        "application/xml");
  }

  static bool take(int& count) { return count > 0 && count-- > 0; }

  // False: answered.
  bool admit(const httplib::Request& request, httplib::Response& response) {
    const std::lock_guard lock(mutex);
    requests.push_back({request.method, request.target, request.get_header_value("Range")});
    if (take(behaviour.failing)) return refuse(response, 500, "InternalError"), false;
    if (take(behaviour.busy)) return refuse(response, 503, "SlowDown"), false;
    const CheckedSignature found = check_signature(request, kSecret);
    if (found.key_id != kKeyId) return refuse(response, 403, "InvalidAccessKeyId"), false;
    if (!behaviour.region.empty() && found.region != behaviour.region) {
      response.set_header("x-amz-bucket-region", behaviour.region);
      return refuse(response, 301, "PermanentRedirect"), false;
    }
    if (!found.is_valid) return refuse(response, 403, "SignatureDoesNotMatch"), false;
    if (!behaviour.session.empty() && request.get_header_value("x-amz-security-token") != behaviour.session)
      return refuse(response, 403, "InvalidToken"), false;
    if (!behaviour.error.empty()) return refuse(response, 403, behaviour.error, kSecret), false;
    if (behaviour.read_only && request.method != "GET" && request.method != "HEAD")
      return refuse(response, 403, "AccessDenied"), false;
    if (request.matches[1] != kBucket) return refuse(response, 404, "NoSuchBucket"), false;
    return true;
  }

  // nullopt: the connection breaks.
  std::optional<std::string> receive(const std::string& key, const httplib::ContentReader& reader) {
    S3Behaviour now;
    {
      const std::lock_guard lock(mutex);
      arriving.insert(key);
      now = behaviour;
      if (behaviour.cut_uploads > 0) --behaviour.cut_uploads;
    }
    std::string body;
    const bool whole = reader([&](const char* bytes, std::size_t size) {
      body.append(bytes, size);
      if (now.read_pause_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(now.read_pause_ms));
      return now.cut_uploads == 0;
    });
    const std::lock_guard lock(mutex);
    arriving.erase(arriving.find(key));
    return whole ? std::optional(body) : std::nullopt;
  }

  // False: answered.
  static bool has_hash(const httplib::Request& request, const std::string& body, httplib::Response& response) {
    if (request.get_header_value("x-amz-content-sha256") == hex_sha256(body)) return true;
    refuse(response, 400, "XAmzContentSHA256Mismatch");
    return false;
  }

  void list(const httplib::Request& request, httplib::Response& response) {
    const std::string prefix = request.get_param_value("prefix"), after = request.get_param_value("continuation-token");
    std::string xml = "<ListBucketResult>", last;
    std::size_t count = 0;
    bool truncated = false;
    for (const auto& [key, object] : objects) {
      if (!key.starts_with(prefix) || key <= after) continue;
      if (count++ == behaviour.page) {
        truncated = true;
        break;
      }
      xml += fmt::format("<Contents><Key>{}</Key><Size>{}</Size></Contents>", key, object.content.size());
      last = key;
    }
    xml += fmt::format("<IsTruncated>{}</IsTruncated>", truncated);
    if (truncated) xml += fmt::format("<NextContinuationToken>{}</NextContinuationToken>", last);
    response.set_content(xml + "</ListBucketResult>", "application/xml");
  }

  void get(const httplib::Request& request, httplib::Response& response) {
    auto& ranges = const_cast<httplib::Request&>(request).ranges;
    const httplib::Ranges asked = std::exchange(ranges, {});  // not of an error's body
    if (!admit(request, response)) return;
    const std::lock_guard lock(mutex);
    const std::string key = request.matches[2];
    if (request.has_param("uploads")) {
      std::string xml = "<ListMultipartUploadsResult>";
      for (const auto& [id, upload] : uploads)
        if (upload.key.starts_with(request.get_param_value("prefix")))
          xml += fmt::format("<Upload><Key>{}</Key><UploadId>{}</UploadId></Upload>", upload.key, id);
      return response.set_content(xml + "</ListMultipartUploadsResult>", "application/xml");
    }
    if (request.has_param("list-type")) return list(request, response);
    const auto found = objects.find(key);
    if (found == objects.end()) return refuse(response, 404, "NoSuchKey");
    ranges = asked;
    for (const auto& [name, value] : found->second.metadata) response.set_header(name, value);
    std::string content = found->second.content;
    if (behaviour.corrupt && !content.empty()) content[content.size() / 2] ^= 1;
    if (request.method == "HEAD" || content.empty()) return response.set_content(content, "application/octet-stream");
    const bool cut = take(behaviour.cut);
    const int pause = behaviour.write_pause_ms;
    response.set_content_provider(
        content.size(), "application/octet-stream",
        [content, cut, pause, given = std::size_t{0}](std::size_t offset, std::size_t length,
                                                      httplib::DataSink& sink) mutable {
          const std::size_t count = std::min<std::size_t>(
              {length, std::size_t{64} << 10, cut ? std::max<std::size_t>(content.size() / 3, 1) : length});
          sink.write(content.data() + offset, count);
          given += count;
          if (pause > 0) std::this_thread::sleep_for(std::chrono::milliseconds(pause));
          return !cut || given >= content.size();
        });
  }

  void put(const httplib::Request& request, httplib::Response& response, const httplib::ContentReader& reader) {
    const std::optional<std::string> body = receive(request.matches[2], reader);
    // As S3 answers an upload that stands still.
    if (!body) {
      response.set_header("Connection", "close");
      return refuse(response, 400, "RequestTimeout");
    }
    if (!admit(request, response) || !has_hash(request, *body, response)) return;
    const std::lock_guard lock(mutex);
    response.set_header("ETag", tag_of(*body));
    if (!request.has_param("uploadId")) {
      objects[request.matches[2]] = {*body, metadata_of(request)};
      return;
    }
    const auto upload = uploads.find(request.get_param_value("uploadId"));
    if (upload == uploads.end()) return refuse(response, 404, "NoSuchUpload");
    const int part = std::stoi(request.get_param_value("partNumber"));
    upload->second.parts[part] = *body;
    upload->second.tags[part] = take(behaviour.wrong_tags) ? "\"another\"" : tag_of(*body);
  }

  void complete(const httplib::Request& request, httplib::Response& response, const std::string& body) {
    const std::string id = request.get_param_value("uploadId");
    const auto upload = uploads.find(id);
    if (upload == uploads.end()) return refuse(response, 404, "NoSuchUpload");
    if (take(behaviour.late_errors)) return refuse(response, 200, "InternalError");
    Object object{{}, upload->second.metadata};
    for (const auto& [part, content] : upload->second.parts) {
      std::string tag = upload->second.tags[part];
      for (std::size_t at = tag.find('"'); at != std::string::npos; at = tag.find('"')) tag.replace(at, 1, "&quot;");
      if (body.find(fmt::format("<PartNumber>{}</PartNumber><ETag>{}</ETag>", part, tag)) == std::string::npos)
        return refuse(response, 400, "InvalidPart");
      object.content += content;
    }
    objects[upload->second.key] = object;
    uploads.erase(upload);
    if (take(behaviour.lost_completions)) return refuse(response, 500, "InternalError");
    response.set_content("<CompleteMultipartUploadResult></CompleteMultipartUploadResult>", "application/xml");
  }

  void post(const httplib::Request& request, httplib::Response& response) {
    if (!admit(request, response) || !has_hash(request, request.body, response)) return;
    const std::lock_guard lock(mutex);
    if (!request.has_param("uploads")) return complete(request, response, request.body);
    const std::string id = fmt::format("upload/{}+=", ++next_upload);
    uploads[id] = {request.matches[2], metadata_of(request), {}, {}};
    response.set_content(fmt::format("<InitiateMultipartUploadResult><UploadId>{}</UploadId>"
                                     "</InitiateMultipartUploadResult>",
                                     id),
                         "application/xml");
  }

  void remove(const httplib::Request& request, httplib::Response& response) {
    if (!admit(request, response)) return;
    const std::lock_guard lock(mutex);
    if (request.has_param("uploadId"))
      uploads.erase(request.get_param_value("uploadId"));
    else
      objects.erase(request.matches[2]);
    response.status = 204;
  }

  void start() {
    constexpr const char* kPath = "/([^/]+)(?:/(.*))?";
    server = std::make_unique<httplib::Server>();
    server->set_keep_alive_timeout(1);
    server->Get(kPath, [this](const auto& request, auto& response) { get(request, response); });
    server->Put(kPath,
                [this](const auto& request, auto& response, const auto& reader) { put(request, response, reader); });
    server->Post(kPath,
                 [this](const httplib::Request& request, httplib::Response& response) { post(request, response); });
    server->Delete(kPath,
                   [this](const httplib::Request& request, httplib::Response& response) { remove(request, response); });
    if (port == 0)
      port = server->bind_to_any_port("127.0.0.1");
    else
      server->bind_to_port("127.0.0.1", port);
    thread = std::thread([this] { server->listen_after_bind(); });
    while (!server->is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  void stop() {
    if (!server) return;
    server->stop();
    thread.join();
    server.reset();
  }
};

S3Server::S3Server() : state_(std::make_unique<State>()) {
  state_->start();
}

S3Server::~S3Server() {
  state_->stop();
}

std::string S3Server::endpoint() const {
  return fmt::format("http://127.0.0.1:{}", state_->port);
}

void S3Server::stop() {
  state_->stop();
}

void S3Server::start() {
  state_->start();
}

void S3Server::set(const S3Behaviour& behaviour) {
  const std::lock_guard lock(state_->mutex);
  state_->behaviour = behaviour;
}

std::map<std::string, std::string> S3Server::objects() const {
  const std::lock_guard lock(state_->mutex);
  std::map<std::string, std::string> contents;
  for (const auto& [key, object] : state_->objects) contents[key] = object.content;
  return contents;
}

void S3Server::put(const std::string& key, const std::string& content) {
  const std::lock_guard lock(state_->mutex);
  state_->objects[key] = {content, {}};
}

void S3Server::erase(const std::string& key) {
  const std::lock_guard lock(state_->mutex);
  state_->objects.erase(key);
}

std::size_t S3Server::open_uploads() const {
  const std::lock_guard lock(state_->mutex);
  return state_->uploads.size();
}

std::vector<SeenS3Request> S3Server::requests() const {
  const std::lock_guard lock(state_->mutex);
  return state_->requests;
}

std::vector<std::string> S3Server::arriving() const {
  const std::lock_guard lock(state_->mutex);
  return {state_->arriving.begin(), state_->arriving.end()};
}

void S3Server::forget_requests() {
  const std::lock_guard lock(state_->mutex);
  state_->requests.clear();
}

}  // namespace quench::testing
