#pragma once
// S3-compatible storage on this machine for tests: one bucket in memory, over HTTP. It checks signatures with its own
// implementation of version 4, and the SHA-256 of what arrives.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace quench::testing {

// One request as it arrived.
struct SeenS3Request {
  std::string method;
  std::string target;  // path and query
  std::string range;
};

// How the server answers; counts are used up.
struct S3Behaviour {
  int failing = 0;           // answers 500
  int busy = 0;              // answers 503 SlowDown
  int cut = 0;               // downloads whose connection breaks in the middle
  int cut_uploads = 0;       // uploads of files whose connection breaks in the middle
  int wrong_tags = 0;        // parts with an ETag that the server then does not know
  int lost_completions = 0;  // multipart uploads that are completed, but answered with 500
  int late_errors = 0;       // completions with status 200 and an error in the body
  std::string error{};       // code of all answers, with status 403: ExpiredToken, AccessDenied
  bool read_only = false;    // AccessDenied for PUT, POST and DELETE
  std::string region{};      // requests signed for another are answered with 301
  int read_pause_ms = 0;     // after each piece of an upload
  int write_pause_ms = 0;    // after each piece of a download
  bool corrupt = false;      // a changed byte in downloads
  std::size_t page = 1000;   // objects of a page of the list
  std::string session{};     // token that requests must have
};

class S3Server {
 public:
  static constexpr const char* kBucket = "models";
  static constexpr const char* kKeyId = "TESTKEYID";
  static constexpr const char* kSecret = "secret-of-the-tests";

  S3Server();
  ~S3Server();
  S3Server(const S3Server&) = delete;
  S3Server& operator=(const S3Server&) = delete;

  [[nodiscard]] std::string endpoint() const;
  // Closes the port; start() opens the same one.
  void stop();
  void start();

  void set(const S3Behaviour& behaviour);
  // Contents by key.
  [[nodiscard]] std::map<std::string, std::string> objects() const;
  void put(const std::string& key, const std::string& content);
  void erase(const std::string& key);
  // Uploads in parts that were begun and neither completed nor removed.
  [[nodiscard]] std::size_t open_uploads() const;
  [[nodiscard]] std::vector<SeenS3Request> requests() const;
  void forget_requests();
  // Keys of uploads whose bytes are arriving.
  [[nodiscard]] std::vector<std::string> arriving() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quench::testing
