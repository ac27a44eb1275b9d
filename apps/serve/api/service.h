#pragma once
// The routes of the server.
//
//   POST /v1/chat/completions, /v1/completions     GET /v1/models, /v1/models/NAME, /metrics     with the key, if any
//   GET /, /health                                                                               without
//
// An error of one request is an OpenAI error object for its client and touches no other.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "apps/serve/api/answering.h"
#include "apps/serve/api/served_models.h"
#include "apps/serve/http/http_server.h"

namespace quench::serve {

struct ServiceOptions {
  ServedModels models;
  std::string host;     // as listened to
  std::string api_key;  // empty: none
  std::size_t max_body = std::size_t{8} << 20;
  bool verbose = false;        // logs every request
  SamplingOptions sampling{};  // where a request is silent
};

class Service {
 public:
  // All must outlive the server's connections. Adds the routes.
  Service(const ServiceOptions& options, Backend& backend, HttpServer& server);

  // Answers further requests with status 503.
  void refuse_new() noexcept { refusing_ = true; }

 private:
  using Handled = httplib::Server::HandlerResponse;

  void add_answers(HttpServer& server);
  void add_reports(HttpServer& server);
  void set_common_handlers(HttpServer& server);
  Handled admit(const httplib::Request& request, httplib::Response& response) const;
  void answer(const httplib::Request& request, httplib::Response& response, const httplib::ContentReader& reader,
              bool chat);
  void stream(std::shared_ptr<Answering> answering, httplib::Response& response) const;
  void write_whole(Answering& answering, httplib::Response& response) const;
  void log_response(const httplib::Request& request, const httplib::Response& response);
  // -1: the base.
  [[nodiscard]] Json model_json(std::int64_t adapter) const;

  ServiceOptions options_;
  Backend& backend_;
  std::int64_t started_;
  std::atomic<bool> refusing_ = false;
  std::atomic<std::size_t> body_bytes_ = 0;  // all bodies in memory
  std::mutex large_body_;                    // one at a time is parsed
};

}  // namespace quench::serve
