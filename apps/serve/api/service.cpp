#include "apps/serve/api/service.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <new>

#include "apps/serve/api/api_error.h"
#include "apps/serve/api/api_key.h"
#include "apps/serve/api/page.h"
#include "apps/serve/http/connection.h"
#include "core/system/log.h"
#include "core/system/printable.h"
#include "core/system/utf8.h"

namespace quench::serve {
namespace {

constexpr const char* kJson = "application/json";
constexpr std::size_t kMostPath = 1024;
constexpr std::array<std::string_view, 2> kPostPaths = {"/v1/chat/completions", "/v1/completions"};
constexpr std::array<std::string_view, 2> kPublicPaths = {"/", "/health"};
constexpr std::array<std::string_view, 2> kReportPaths = {"/metrics", "/v1/models"};

template <class Paths>
bool is_one_of(const Paths& paths, std::string_view path) {
  return std::ranges::find(paths, path) != paths.end();
}

void set_error(httplib::Response& response, const ApiError& error) {
  response.status = error.status();
  if (error.status() == 401) response.set_header("WWW-Authenticate", "Bearer");
  if (error.status() == 429 || error.status() == 503) response.set_header("Retry-After", "1");
  response.set_content(error.body(), kJson);
}

ApiError current_error() {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const Error& error) {
    return api_error(error);
  } catch (const std::bad_alloc&) {
    return {503, "out_of_memory", "the server has no memory for this request"};
  } catch (const std::exception& error) {
    return {500, "", error.what()};
  }
}

// A client that left: the status is seen by log and metrics alone.
constexpr int kClientClosed = 499;

}  // namespace

Service::Service(const ServiceOptions& options, Backend& backend, HttpServer& server)
    : options_(options), backend_(backend), started_(static_cast<std::int64_t>(std::time(nullptr))) {
  set_common_handlers(server);
  add_reports(server);
  add_answers(server);
}

void Service::set_common_handlers(HttpServer& server) {
  server.set_payload_max_length(options_.max_body);
  server.set_default_headers({{"X-Content-Type-Options", "nosniff"}});
  server.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    try {
      return admit(request, response);
    } catch (...) {
      set_error(response, current_error());
      return Handled::Handled;
    }
  });
  // Errors of the HTTP library.
  server.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty()) return;
    const std::string what = response.status == 404
                                 ? fmt::format("unknown path {} {}", request.method, shorten_utf8(request.path, 200))
                                 : fmt::format("HTTP status {}", response.status);
    set_error(response, ApiError(response.status, "", what));
  });
  server.set_exception_handler([](const httplib::Request&, httplib::Response& response, std::exception_ptr error) {
    try {
      std::rethrow_exception(std::move(error));
    } catch (...) {
      set_error(response, current_error());
    }
  });
  server.set_logger(
      [this](const httplib::Request& request, const httplib::Response& response) { log_response(request, response); });
}

Service::Handled Service::admit(const httplib::Request& request, httplib::Response&) const {
  const std::string& path = request.path;
  if (path.size() > kMostPath) throw ApiError(414, "", "the path is too long");
  if (request.method != "GET" && request.method != "HEAD" && request.method != "POST")
    throw ApiError(405, "", fmt::format("method {} is not supported", shorten_utf8(request.method, 20)));
  if (request.method == "POST" && !is_one_of(kPostPaths, path))
    throw ApiError(404, "", fmt::format("unknown path POST {}", shorten_utf8(path, 200)));
  if (options_.api_key.empty() && !is_own_host(request.get_header_value("Host"), options_.host))
    throw ApiError(403, "",
                   "the Host header is none of this server: without an API key it answers to localhost and "
                   "addresses only");
  if (!options_.api_key.empty() && !is_one_of(kPublicPaths, path) &&
      !is_authorized(request.get_header_value("Authorization"), options_.api_key))
    throw ApiError(401, "invalid_api_key", "wrong or missing API key: expected the header Authorization: Bearer KEY");
  if (refusing_) throw ApiError(503, "server_stopped", "the server is shutting down");
  return Handled::Unhandled;
}

Json Service::model_json(std::int64_t adapter) const {
  Json model = Json::Object{{"id", options_.models.name_of(adapter)},
                            {"object", "model"},
                            {"created", started_},
                            {"owned_by", "quench"},
                            {"max_model_len", backend_.model.config().context_length()}};
  if (adapter >= 0) model.set("parent", options_.models.base);
  return model;
}

void Service::add_reports(HttpServer& server) {
  const auto set_json = [](httplib::Response& response, const Json& json) {
    response.set_content(json.dump() + "\n", kJson);
  };
  server.Get("/", [](const httplib::Request&, httplib::Response& response) {
    response.set_header("Cache-Control", "no-cache");
    response.set_content(std::string(chat_page()), "text/html; charset=utf-8");
  });
  server.Get("/health", [set_json](const httplib::Request&, httplib::Response& response) {
    set_json(response, Json::Object{{"status", "ok"}});
  });
  server.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
    response.set_content(backend_.metrics.text(backend_.engine.stats()), "text/plain; version=0.0.4; charset=utf-8");
  });
  server.Get("/v1/models", [this, set_json](const httplib::Request&, httplib::Response& response) {
    Json models = Json::array();
    for (std::int64_t adapter = -1; adapter < std::ssize(options_.models.adapters); ++adapter)
      models.push_back(model_json(adapter));
    set_json(response, Json::Object{{"object", "list"}, {"data", std::move(models)}});
  });
  server.Get("/v1/models/(.+)", [this, set_json](const httplib::Request& request, httplib::Response& response) {
    try {
      set_json(response, model_json(options_.models.adapter_of(request.matches[1])));
    } catch (const ApiError& error) {
      set_error(response, error);
    }
  });
}

void Service::add_answers(HttpServer& server) {
  for (const std::string_view path : kPostPaths)
    server.Post(std::string(path),
                [this, chat = path == kPostPaths.front()](const httplib::Request& request, httplib::Response& response,
                                                          const httplib::ContentReader& reader) {
                  try {
                    answer(request, response, reader, chat);
                  } catch (const ClientGone&) {
                    response.status = kClientClosed;
                  } catch (...) {
                    set_error(response, current_error());
                  }
                });
}

void Service::log_response(const httplib::Request& request, const httplib::Response& response) {
  const std::string& path = request.path;
  const bool known = is_one_of(kPostPaths, path) || is_one_of(kPublicPaths, path) || is_one_of(kReportPaths, path);
  backend_.metrics.count_response(known ? path : "other", response.status);
  if (!options_.verbose) return;
  const Connection* connection = Connection::current();
  QUENCH_LOG_INFO("{} {} {} {} {:.3f} s", request.remote_addr, printable(request.method),
                  printable(shorten_utf8(path, 200)), response.status,
                  connection != nullptr ? connection->seconds() : 0.0);
}

}  // namespace quench::serve
