// Bodies of requests, and answers to them, whole and streamed.

#include <malloc.h>

#include <algorithm>
#include <charconv>

#include "apps/serve/api/api_error.h"
#include "apps/serve/api/service.h"
#include "apps/serve/http/connection.h"
#include "core/system/utf8.h"

namespace quench::serve {
namespace {

constexpr std::size_t kLargeBody = std::size_t{1} << 20;
constexpr std::size_t kBodiesInMemory = 16;  // number of largest bodies

// Scope in which the only large body is read as JSON and encoded: values and tokens take many times its bytes. They go
// back to the system at the end.
class LargeBody {
 public:
  LargeBody(std::mutex& only, std::size_t bytes) {
    if (bytes > kLargeBody) alone_ = std::unique_lock(only);
  }
  ~LargeBody() {
    if (alone_) ::malloc_trim(0);
  }
  LargeBody(const LargeBody&) = delete;
  LargeBody& operator=(const LargeBody&) = delete;

 private:
  std::unique_lock<std::mutex> alone_;
};

// Counts bytes of a body as long as it is in memory.
class BodyBytes {
 public:
  BodyBytes(std::atomic<std::size_t>& all, std::size_t most) : all_(all), most_(most) {}
  ~BodyBytes() { all_ -= bytes_; }
  BodyBytes(const BodyBytes&) = delete;
  BodyBytes& operator=(const BodyBytes&) = delete;

  [[nodiscard]] bool add(std::size_t bytes) {
    bytes_ += bytes;
    return all_.fetch_add(bytes) + bytes <= most_;
  }

 private:
  std::atomic<std::size_t>& all_;
  std::size_t most_, bytes_ = 0;
};

void check_body_headers(const httplib::Request& request, std::size_t max_body) {
  const std::string type = request.get_header_value("Content-Type");
  const std::string media = type.substr(0, type.find_first_of("; "));
  if (!std::ranges::equal(media, std::string_view("application/json"),
                          [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; }))
    throw ApiError(415, "",
                   fmt::format("the Content-Type is \"{}\", expected application/json", shorten_utf8(type, 100)));
  const std::string encoding = request.get_header_value("Content-Encoding");
  if (!encoding.empty() && encoding != "identity")
    throw ApiError(415, "", fmt::format("Content-Encoding \"{}\" is not supported", shorten_utf8(encoding, 100)));
  const std::string length = request.get_header_value("Content-Length");
  if (length.empty() && !request.has_header("Transfer-Encoding"))
    throw ApiError(411, "", "the request has no body, or no Content-Length");
  std::size_t bytes = 0;
  const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), bytes);
  if (!length.empty() && (error != std::errc() || end != length.data() + length.size()))
    throw ApiError(400, "", "Content-Length is no number");
  if (bytes > max_body)
    throw ApiError(413, "", fmt::format("the body has {} bytes, the most are {} (--max-body)", bytes, max_body));
}

std::string event(const std::string& data) {
  return "data: " + data + "\n\n";
}

std::string read_body(const httplib::Request& request, const httplib::ContentReader& reader, std::size_t max_body,
                      BodyBytes& memory) {
  check_body_headers(request, max_body);
  std::string body;
  bool too_long = false, too_many = false;
  const bool complete = reader([&](const char* data, std::size_t size) {
    too_long = body.size() + size > max_body;
    too_many = !too_long && !memory.add(size);
    if (!too_long && !too_many) body.append(data, size);
    return !too_long && !too_many;
  });
  if (too_long) throw ApiError(413, "", fmt::format("the body has more than {} bytes (--max-body)", max_body));
  if (too_many) throw ApiError(503, "out_of_memory", "too many large requests at once: try again later");
  if (!complete) throw ApiError(408, "", "the body did not arrive in time or ended early");
  if (Connection* connection = Connection::current()) connection->body_read();
  return body;
}

}  // namespace

void Service::answer(const httplib::Request& request, httplib::Response& response, const httplib::ContentReader& reader,
                     bool chat) {
  std::shared_ptr<Answering> answering;
  {
    BodyBytes memory(body_bytes_, options_.max_body * kBodiesInMemory);
    std::string body = read_body(request, reader, options_.max_body, memory);
    const LargeBody large(large_body_, body.size());
    Json json = parse_body(body);
    body = std::string();
    ApiRequest parsed =
        chat ? parse_chat_request(json, options_.sampling) : parse_completion_request(json, options_.sampling);
    json = Json();
    const std::int64_t adapter = options_.models.adapter_of(parsed.model);
    answering = std::make_shared<Answering>(backend_, std::move(parsed), adapter);
  }
  answering->submit();
  if (answering->request().stream)
    stream(std::move(answering), response);
  else
    write_whole(*answering, response);
}

void Service::write_whole(Answering& answering, httplib::Response& response) const {
  const ResponseForm form(answering.request(), backend_.tokenizer, options_.models.name_of(answering.adapter()));
  while (answering.next()) continue;
  response.set_content(form.whole(answering.choices(), answering.usage()).dump(), "application/json");
}

// The provider is called once: the HTTP library ends streams between calls when it stops listening.
void Service::stream(std::shared_ptr<Answering> answering, httplib::Response& response) const {
  response.set_header("Cache-Control", "no-store");
  response.set_header("X-Accel-Buffering", "no");  // nginx
  response.set_chunked_content_provider("text/event-stream", [this, answering](std::size_t, httplib::DataSink& sink) {
    const auto send = [&](const std::string& data) {
      const std::string text = event(data);
      if (!sink.write(text.data(), text.size())) throw ClientGone();
    };
    try {
      ResponseForm form(answering->request(), backend_.tokenizer, options_.models.name_of(answering->adapter()));
      if (answering->request().chat)
        for (std::size_t i = 0; i < answering->choices().size(); ++i) send(form.opening(i).dump());
      while (auto next = answering->next()) send(form.chunk(next->first, next->second).dump());
      if (answering->request().include_usage) send(form.usage_chunk(answering->usage()).dump());
      send("[DONE]");
    } catch (const ClientGone&) {
      return false;
    } catch (const ApiError& error) {
      const std::string text = event(error.body());
      if (!sink.write(text.data(), text.size())) return false;
    } catch (const std::exception& error) {
      const std::string text = event(ApiError(500, "", error.what()).body());
      if (!sink.write(text.data(), text.size())) return false;
    }
    sink.done();
    return true;
  });
}

}  // namespace quench::serve
