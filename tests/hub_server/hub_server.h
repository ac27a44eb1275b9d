#pragma once
// Hub on this machine for tests: a server of repositories that speaks the Hugging Face Hub's interface over HTTP, and a
// second one in place of its content network, to which contents of large files are redirected.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace quench::testing {

struct ServedFile {
  std::string content;
  bool is_lfs = false;
};

// One request as it arrived.
struct SeenRequest {
  std::string method, path, range, authorization;
  bool at_storage = false;  // at the second server
};

// How the servers answer; counts are used up.
struct Behaviour {
  std::string token{};  // "Bearer" token that the hub asks for; empty: none
  bool gated = false;
  int busy = 0;                  // answers 429 with Retry-After
  int failing = 0;               // answers 503
  int cut = 0;                   // contents whose connection breaks
  std::uint64_t cut_after = 0;   // bytes
  bool corrupt = false;          // a changed byte in contents
  bool ranges = true;            // false: the whole content comes, whatever the range
  int chunk_pause_ms = 0;        // after each 64 KiB of a content
  std::size_t page = 1000;       // files of a page of the list
  std::string extra_entry{};     // JSON, at the end of the list
  std::uint64_t part_bytes = 0;  // uploads in parts of this size; 0: whole
  bool public_only = false;      // new repositories, whatever is asked for
  std::string error_message{};   // X-Error-Message of errors
};

class HubServer {
 public:
  HubServer();
  ~HubServer();
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  [[nodiscard]] std::string endpoint() const;
  // Both replace what there is. `repo`: "ORG/NAME", or "datasets/ORG/NAME".
  void set_files(const std::string& repo, const std::map<std::string, ServedFile>& files,
                 const std::string& revision = "main");
  void set(const Behaviour& behaviour);

  // Content of a revision.
  [[nodiscard]] std::map<std::string, ServedFile> files(const std::string& repo,
                                                        const std::string& revision = "main") const;
  [[nodiscard]] std::string commit(const std::string& repo, const std::string& revision = "main") const;
  [[nodiscard]] bool is_private(const std::string& repo) const;
  [[nodiscard]] std::string last_message(const std::string& repo) const;
  [[nodiscard]] std::vector<SeenRequest> requests() const;
  void forget_requests();
  // Bytes of contents that have left the servers.
  [[nodiscard]] std::uint64_t sent_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Lower case hexadecimal.
[[nodiscard]] std::string sha256_of(const std::string& text);
[[nodiscard]] std::string git_blob_of(const std::string& text);

}  // namespace quench::testing
