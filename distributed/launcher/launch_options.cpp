#include "distributed/launcher/launch_options.h"

#include <sched.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "core/device/device.h"
#include "core/system/check.h"
#include "core/system/log.h"
#include "distributed/environment.h"
#include "distributed/store/protocol.h"

namespace quench::distributed {
namespace {

constexpr int kMaxWorkers = 1024;
constexpr int kMaxNodes = 1 << 16;
constexpr unsigned kBothStreams = kStdout | kStderr;

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    parts.push_back(text.substr(0, text.find(separator)));
    text.remove_prefix(std::min(text.size(), parts.back().size() + 1));
  }
  return parts;
}

int read_nodes(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::optional<int> least = whole_number(std::string_view(text).substr(0, colon));
  const std::optional<int> most =
      colon == std::string::npos ? least : whole_number(std::string_view(text).substr(colon + 1));
  QUENCH_CHECK_AS(ErrorCode::bad_config, least && most && *least >= 1 && *least <= kMaxNodes,
                  "--nnodes: '{}' is no number of nodes", text);
  QUENCH_CHECK_AS(ErrorCode::bad_config, *least == *most,
                  "--nnodes: {} asks for a number of nodes that changes; runs have a fixed one: give {} or {}", text,
                  *least, *most);
  return *least;
}

int cpu_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int gpu_count() {
  return has_backend(DeviceType::cuda) ? backend(DeviceType::cuda).device_count() : 0;
}

int read_workers(const std::string& text) {
  if (text == "cpu") return cpu_count();
  if (text == "auto") return gpu_count() > 0 ? gpu_count() : cpu_count();
  if (text == "gpu") {
    const int count = gpu_count();
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    QUENCH_CHECK_AS(ErrorCode::bad_config, count > 0, "--nproc-per-node gpu: there is no GPU here ({}{})",
                    has_backend(DeviceType::cuda) ? backend(DeviceType::cuda).unavailable_reason()
                                                  : "this build has no CUDA back end",
                    visible != nullptr ? fmt::format("; CUDA_VISIBLE_DEVICES={}", visible) : "");
    return count;
  }
  const std::optional<int> count = whole_number(text);
  QUENCH_CHECK_AS(ErrorCode::bad_config, count && *count >= 1 && *count <= kMaxWorkers,
                  "--nproc-per-node: '{}' is no number from 1 to {}, nor gpu, cpu or auto", text, kMaxWorkers);
  return *count;
}

// "3", or "0:3,1:2": for all workers, or per worker.
std::vector<unsigned> read_streams(const std::string& text, int workers, std::string_view flag) {
  std::vector<unsigned> result(static_cast<std::size_t>(workers), kNoStream);
  const auto streams = [&](std::string_view word) {
    const std::optional<int> value = whole_number(word);
    QUENCH_CHECK_AS(ErrorCode::bad_config, value && *value >= 0 && *value <= static_cast<int>(kBothStreams),
                    "{}: '{}' in '{}' is none of 0 (nothing), 1 (stdout), 2 (stderr), 3 (both)", flag, word, text);
    return static_cast<unsigned>(*value);
  };
  if (text.find(':') == std::string::npos) {
    result.assign(result.size(), streams(text));
    return result;
  }
  for (const std::string_view part : split(text, ',')) {
    const std::size_t colon = part.find(':');
    const std::optional<int> rank = whole_number(part.substr(0, colon));
    QUENCH_CHECK_AS(ErrorCode::bad_config, colon != std::string_view::npos && rank && *rank >= 0 && *rank < workers,
                    "{}: '{}' in '{}' is no LOCAL_RANK:STREAMS with a rank below {}", flag, part, text, workers);
    result[static_cast<std::size_t>(*rank)] = streams(part.substr(colon + 1));
  }
  return result;
}

std::vector<bool> read_filter(const std::string& text, int workers) {
  std::vector<bool> result(static_cast<std::size_t>(workers), text.empty());
  for (const std::string_view part : split(text, ',')) {
    const std::optional<int> rank = whole_number(part);
    QUENCH_CHECK_AS(ErrorCode::bad_config, rank && *rank >= 0 && *rank < workers,
                    "--local-ranks-filter: '{}' in '{}' is no local rank below {}", part, text, workers);
    result[static_cast<std::size_t>(*rank)] = true;
  }
  return result;
}

std::chrono::milliseconds read_seconds(double value, std::string_view flag) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, std::isfinite(value) && value >= 0 && value <= 1e6,
                  "{}: {} is no number of seconds from 0 to 1000000", flag, value);
  return std::chrono::milliseconds(static_cast<std::int64_t>(value * 1000));
}

// Seconds: "FIRST:MOST", or one number.
void read_backoff(const std::string& text, LaunchOptions& options) {
  const auto seconds = [&](std::string_view word) {
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    QUENCH_CHECK_AS(ErrorCode::bad_config, error == std::errc() && end == word.data() + word.size(),
                    "--restart-backoff: '{}' is no FIRST:MOST in seconds", text);
    return read_seconds(value, "--restart-backoff");
  };
  const std::size_t colon = text.find(':');
  options.first_backoff = seconds(std::string_view(text).substr(0, colon));
  options.most_backoff =
      colon == std::string::npos ? options.first_backoff : seconds(std::string_view(text).substr(colon + 1));
  QUENCH_CHECK_AS(ErrorCode::bad_config, options.first_backoff <= options.most_backoff,
                  "--restart-backoff: '{}' begins with more than its most", text);
}

// --rdzv-conf.
void read_conf(const std::string& text, LaunchOptions& options) {
  for (const std::string_view part : split(text, ',')) {
    const std::string_view key = part.substr(0, part.find('='));
    QUENCH_CHECK_AS(ErrorCode::bad_config, key == "join_timeout" || key == "timeout",
                    "--rdzv-conf: '{}' is unknown; join_timeout (or timeout), in seconds, is what there is", part);
    const std::optional<int> seconds = whole_number(part.substr(std::min(part.size(), key.size() + 1)));
    QUENCH_CHECK_AS(ErrorCode::bad_config, seconds.has_value(), "--rdzv-conf: '{}' has no number of seconds", part);
    options.join_timeout = read_seconds(*seconds, "--rdzv-conf");
  }
}

std::string read_token(const std::string& file) {
  if (!file.empty()) return read_token_file(file, "--rdzv-token-file");
  const char* given = std::getenv("QUENCH_RDZV_TOKEN");
  return given == nullptr ? "" : given;
}

// Backend and endpoint, from one of three sets of flags.
void read_rendezvous(const LaunchFlags& flags, LaunchOptions& options) {
  const bool is_static = flags.rdzv_backend == "static" || (flags.rdzv_backend.empty() && flags.rdzv_endpoint.empty());
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  flags.rdzv_backend.empty() || flags.rdzv_backend == "static" || flags.rdzv_backend == "c10d",
                  "--rdzv-backend: '{}' is unknown; static (--node-rank, --master-addr) and c10d (--rdzv-endpoint) are "
                  "what there is",
                  flags.rdzv_backend);
  QUENCH_CHECK_AS(ErrorCode::bad_config, flags.master_port >= 0 && flags.master_port <= 65535,
                  "--master-port: {} is no number from 0 to 65535", flags.master_port);
  options.master_port = flags.master_port;
  if (flags.standalone || (options.nodes == 1 && flags.rdzv_endpoint.empty())) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, options.nodes == 1, "--standalone is for one node, --nnodes says {}",
                    options.nodes);
    return;
  }
  if (!is_static) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, !flags.rdzv_endpoint.empty(), "--rdzv-backend c10d needs --rdzv-endpoint");
    options.endpoint = parse_endpoint(flags.rdzv_endpoint, kDefaultRendezvousPort, "--rdzv-endpoint");
    options.node_rank = -1;
  } else {
    const std::string master = !flags.master_addr.empty() ? flags.master_addr : flags.rdzv_endpoint;
    QUENCH_CHECK_AS(ErrorCode::bad_config, !master.empty(),
                    "--nnodes {}: how do the nodes find each other? Give all of them --rdzv-endpoint HOST:PORT, or "
                    "--master-addr HOST and each its --node-rank",
                    options.nodes);
    options.endpoint = parse_endpoint(master, flags.master_port != 0 ? flags.master_port : kDefaultMasterPort,
                                      flags.master_addr.empty() ? "--rdzv-endpoint" : "--master-addr");
    options.master_port = 0;
    QUENCH_CHECK_AS(ErrorCode::bad_config, flags.node_rank >= 0 && flags.node_rank < options.nodes,
                    "--node-rank: {} of {} nodes; give each node its own, from 0 to {}", flags.node_rank, options.nodes,
                    options.nodes - 1);
    options.node_rank = flags.node_rank;
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, options.nodes == 1 || options.endpoint.port != 0,
                  "port 0 takes a free port that other nodes cannot know; give --rdzv-endpoint a port");
}

}  // namespace

LaunchOptions read_launch_flags(const LaunchFlags& flags) {
  LaunchOptions options;
  options.nodes = read_nodes(flags.nnodes);
  options.workers = read_workers(flags.nproc_per_node);
  read_rendezvous(flags, options);
  read_conf(flags.rdzv_conf, options);
  options.job = !flags.rdzv_id.empty() ? flags.rdzv_id : options.alone() ? new_token().substr(0, 12) : "none";
  QUENCH_CHECK_AS(ErrorCode::bad_config, options.job.find('/') == std::string::npos && options.job.size() <= 128,
                  "--rdzv-id: '{}' (at most 128 characters, no slash)", options.job);
  options.token = read_token(flags.rdzv_token_file);
  if (options.token.empty() && options.alone()) options.token = new_token();
  if (options.token.empty())
    QUENCH_LOG_WARN(
        "no token: who reaches {} and knows the job's id '{}' can join; give all nodes the same --rdzv-token-file",
        options.endpoint.to_string(), options.job);
  QUENCH_CHECK_AS(ErrorCode::bad_config, flags.max_restarts >= 0, "--max-restarts: {} is negative", flags.max_restarts);
  options.max_restarts = flags.max_restarts;
  read_backoff(flags.restart_backoff, options);
  options.monitor_interval = read_seconds(flags.monitor_interval, "--monitor-interval");
  options.shutdown_timeout = read_seconds(flags.shutdown_timeout, "--shutdown-timeout");
  options.role = flags.role;
  options.log_dir = flags.log_dir;
  options.redirects = read_streams(flags.redirects, options.workers, "--redirects");
  options.tee = read_streams(flags.tee, options.workers, "--tee");
  options.on_console = read_filter(flags.local_ranks_filter, options.workers);
  return options;
}

}  // namespace quench::distributed
