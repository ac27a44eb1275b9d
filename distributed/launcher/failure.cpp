#include "distributed/launcher/failure.h"

#include <time.h>

#include <chrono>
#include <cmath>

namespace quench::distributed {
namespace {

constexpr int kKilled = 137;
constexpr const char* kRule = "------------------------------------------------------------\n";
constexpr const char* kThickRule = "============================================================\n";

std::string local_time(double seconds) {
  const auto whole = static_cast<time_t>(std::floor(seconds));
  tm parts{};
  ::localtime_r(&whole, &parts);
  char text[64] = "";
  ::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return fmt::format("{}.{:03}", text, static_cast<int>((seconds - std::floor(seconds)) * 1000));
}

std::string describe(const Failure& failure) {
  std::string text = fmt::format("  time      : {}\n  host      : {}\n", local_time(failure.time), failure.host);
  if (failure.rank >= 0)
    text += fmt::format("  rank      : {} (local_rank: {}, node: {})\n  exitcode  : {} (pid: {}), {}\n", failure.rank,
                        failure.local_rank, failure.node, failure.status, failure.process, failure.ending);
  if (failure.status == kKilled && failure.rank >= 0 && failure.message.empty())
    text += "  hint      : the sender of SIGKILL is unknown; the kernel sends it when memory runs out, see dmesg\n";
  if (!failure.early_ranks.empty())
    text += fmt::format("  before    : rank {} left early, with status 0\n", failure.early_ranks);
  if (!failure.logs.empty()) text += fmt::format("  logs      : {}\n", failure.logs);
  text += fmt::format("  message   : {}\n", failure.message.empty() ? "none; see its output" : failure.message);
  return text;
}

}  // namespace

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Json Failure::to_json() const {
  Json json = Json::object();
  json.set("rank", rank);
  json.set("local_rank", local_rank);
  json.set("node", node);
  json.set("host", host);
  json.set("process", process);
  json.set("status", status);
  json.set("ending", ending);
  json.set("message", message.substr(0, 16384));
  json.set("logs", logs);
  json.set("time", time);
  json.set("is_echo", is_echo);
  json.set("step", step);
  json.set("early_ranks", early_ranks);
  return json;
}

Failure Failure::from_json(const Json& json) {
  Failure failure;
  failure.rank = static_cast<int>(json.at("rank").as_int());
  failure.local_rank = static_cast<int>(json.at("local_rank").as_int());
  failure.node = static_cast<int>(json.at("node").as_int());
  failure.host = json.at("host").as_string();
  failure.process = static_cast<int>(json.at("process").as_int());
  failure.status = static_cast<int>(json.at("status").as_int());
  failure.ending = json.at("ending").as_string();
  failure.message = json.at("message").as_string();
  failure.logs = json.at("logs").as_string();
  failure.time = json.at("time").as_double();
  failure.is_echo = json.at("is_echo").as_bool();
  failure.step = json.at("step").as_int();
  failure.early_ranks = json.at("early_ranks").as_string();
  return failure;
}

bool same_failure(const Failure& first, const Failure& second) {
  return first.step >= 0 && first.step == second.step && !first.is_echo && !second.is_echo && !first.message.empty() &&
         first.message == second.message;
}

std::size_t root_cause(const std::vector<Failure>& failures) {
  std::size_t first = 0;
  for (std::size_t i = 1; i < failures.size(); ++i) {
    const Failure &a = failures[i], &b = failures[first];
    if (a.is_echo != b.is_echo ? b.is_echo : a.time < b.time) first = i;
  }
  return first;
}

std::string failure_report(const std::string& program, const std::vector<Failure>& failures) {
  const std::size_t root = root_cause(failures);
  std::string text = kThickRule + fmt::format("{} FAILED\n", program) + kRule;
  text += "Root cause (first observed failure):\n" + describe(failures[root]);
  if (failures.size() > 1) text += std::string(kRule) + "Other failures:\n";
  for (std::size_t i = 0; i < failures.size(); ++i) {
    if (i == root) continue;
    std::string message = failures[i].message.substr(0, failures[i].message.find('\n'));
    if (failures[i].message == failures[root].message && !message.empty()) message = "the same message";
    text += fmt::format("  rank {} on {}: {}{}{}\n", failures[i].rank, failures[i].host, failures[i].ending,
                        message.empty() ? "" : ": ", message);
  }
  return text + kThickRule;
}

}  // namespace quench::distributed
