#pragma once
// A running `quench serve`, and ways to talk to it.

#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench::testing {

// Copy of a model of 128 tokens of context with another context and a chat template that writes tool calls.
inline std::filesystem::path chat_model(const std::filesystem::path& folder, int context = 128) {
  const std::filesystem::path model = folder / "tiny";
  std::filesystem::copy(source_dir() / "tests/train/rolling_likelihood/bos", model);
  Json config = Json::parse_file(model / "config.json");
  config.set("max_position_embeddings", context);
  write_file(model / "config.json", config.dump());
  Json tokenizer = Json::parse_file(model / "tokenizer_config.json");
  tokenizer.set("chat_template",
                "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for m in messages %}{{ m.role }}: "
                "{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}");
  write_file(model / "tokenizer_config.json", tokenizer.dump());
  return model;
}

class ServerProcess {
 public:
  // Waits until it answers; `port` is 0 if it has ended instead. `launcher`: words before the verb.
  ServerProcess(const std::filesystem::path& folder, const std::filesystem::path& model,
                std::vector<std::string> more = {}, const std::vector<std::string>& launcher = {})
      : folder_(folder) {
    std::vector<std::string> arguments{"serve",     "--model", model.string(), "--device", "cpu",
                                       "--threads", "1",       "--port",       "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.begin(), launcher.begin(), launcher.end());
    child_ = start_program(folder, arguments);
    constexpr std::string_view kMark = "API at http://";
    for (int i = 0; i < 6000 && port_ == 0; ++i) {
      const std::string output = read_file(folder / "stdout.txt");
      const std::size_t at = output.find(kMark);
      if (at != std::string::npos && output.ends_with('\n'))
        port_ = std::stoi(output.substr(output.find(':', at + kMark.size()) + 1));
      siginfo_t ended{};
      if (::waitid(P_PID, static_cast<id_t>(child_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid != 0)
        break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~ServerProcess() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] pid_t process() const { return child_; }
  [[nodiscard]] httplib::Client client() const {
    httplib::Client client("127.0.0.1", port_);
    client.set_read_timeout(120);
    return client;
  }
  [[nodiscard]] httplib::Result post(const std::string& path, const std::string& body,
                                     const httplib::Headers& headers = {}) const {
    return client().Post("/v1/" + path, headers, body, "application/json");
  }
  // Body of an answer with status 200.
  [[nodiscard]] Json json(const std::string& path, const std::string& body) const {
    const httplib::Result result = post(path, body);
    if (!result || result->status != 200) {
      ADD_FAILURE() << body << "\n" << (result ? result->body : "no answer");
      return Json::parse(R"({"choices": [{"text": "no answer"}]})");
    }
    return Json::parse(result->body);
  }
  // Text after "data: " of each event.
  [[nodiscard]] std::vector<std::string> events(const std::string& path, const std::string& body) const {
    const httplib::Result result = post(path, body);
    std::vector<std::string> events;
    if (!result || result->status != 200) {
      ADD_FAILURE() << body << "\n" << (result ? result->body : "no answer");
      return events;
    }
    std::istringstream lines(result->body);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("data: ")) events.push_back(line.substr(6));
    return events;
  }
  // Value of a line of /metrics without labels.
  [[nodiscard]] double metric(const std::string& name) const {
    const httplib::Result result = client().Get("/metrics");
    if (!result) return -1;
    const std::size_t at = result->body.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(result->body.substr(at + name.size() + 2));
  }
  Outcome stop(int signal = SIGTERM) {
    ::kill(child_, signal);
    return wait();
  }
  Outcome wait() { return finish_program(folder_, std::exchange(child_, 0)); }

 private:
  std::filesystem::path folder_;
  pid_t child_ = 0;
  int port_ = 0;
};

// Socket to the server.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  // A POST with the body; its length is announced.
  bool post(const std::string& path, const std::string& body) const {
    return send("POST /v1/" + path +
                " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  // Until the bytes hold `mark`, or to the end.
  std::string read_until(std::string_view mark = {}) {
    std::string all;
    char buffer[4096];
    while (mark.empty() || all.find(mark) == std::string::npos) {
      const ssize_t count = ::recv(socket_, buffer, sizeof(buffer), 0);
      if (count <= 0) break;
      all.append(buffer, static_cast<std::size_t>(count));
    }
    return all;
  }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

 private:
  int socket_;
  bool connected_ = false;
};

}  // namespace quench::testing
