#pragma once
// Repositories and the two servers of HubServer.

#include <httplib.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/json/json.h"
#include "tests/hub_server/hub_server.h"

namespace quench::testing {

using Files = std::map<std::string, ServedFile>;

struct ServedRepo {
  std::map<std::string, std::string> revisions;  // commit
  std::map<std::string, Files> commits;
  bool is_private = false;
  std::string message;
};

// One of the two servers.
struct ListeningServer {
  httplib::Server server;
  int port = 0;
  std::thread thread;

  void start();
  void finish();
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port); }
};

struct HubServer::State {
  void start();
  void finish();
  [[nodiscard]] std::string hub_url() const { return hub.url(); }
  // The mutex is held.
  std::string commit(const std::string& repo, const std::string& revision, const Files& files,
                     const std::string& message);

  void add_reading();  // hub_reading.cpp
  void add_storage();  // hub_reading.cpp
  void add_writing();  // hub_writing.cpp
  void add_uploads();  // hub_writing.cpp

  // Records it; false: answered with an error.
  bool admit(const httplib::Request& request, httplib::Response& response);
  void refuse(httplib::Response& response, int status, const std::string& code);
  // Null: answered with an error. The mutex is held.
  const Files* files_of(const std::string& repo, const std::string& revision, httplib::Response& response);
  void serve(const std::string& content, const httplib::Request& request, httplib::Response& response);
  void record(const httplib::Request& request, bool at_storage);
  std::string batch(const Json& request);
  void take_commit(const std::string& repo, const std::string& revision, const std::string& lines,
                   httplib::Response& response, bool as_request);

  mutable std::mutex mutex;
  std::map<std::string, ServedRepo> repos;
  std::map<std::string, std::string> storage;                       // contents by SHA-256
  std::map<std::string, std::map<int, std::string>> storage_parts;  // parts of uploads
  Behaviour behaviour;
  std::vector<SeenRequest> requests;
  std::atomic<std::uint64_t> sent = 0;
  ListeningServer hub, storage_server;
  int commits = 0;
};

}  // namespace quench::testing
