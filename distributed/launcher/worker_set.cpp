#include "distributed/launcher/worker_set.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>

#include "core/system/check.h"
#include "core/system/log.h"
#include "distributed/launcher/error_file.h"

extern char** environ;

namespace quench::distributed {
namespace {

constexpr const char* kErrorFile = "error.json";

// OMP threads: the worker's share of the cores.
int threads_of_worker(int workers) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cores = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::max(1, cores / workers);
}

// torchrun's variables, and Quench's store.
std::map<std::string, std::string> worker_variables(const LaunchOptions& options, const Round& round, int local_rank,
                                                    const std::string& store, const std::string& error_file) {
  const std::string rank = std::to_string(round.first_rank + local_rank), world = std::to_string(round.world_size);
  return {{"RANK", rank},
          {"LOCAL_RANK", std::to_string(local_rank)},
          {"WORLD_SIZE", world},
          {"LOCAL_WORLD_SIZE", std::to_string(options.workers)},
          {"GROUP_RANK", std::to_string(round.node)},
          {"GROUP_WORLD_SIZE", std::to_string(round.nodes)},
          {"ROLE_RANK", rank},
          {"ROLE_WORLD_SIZE", world},
          {"ROLE_NAME", options.role},
          {"MASTER_ADDR", round.master_host},
          {"MASTER_PORT", std::to_string(round.master_port)},
          {"TORCHELASTIC_RESTART_COUNT", std::to_string(round.number)},
          {"TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts)},
          {"TORCHELASTIC_RUN_ID", options.job},
          {"TORCHELASTIC_USE_AGENT_STORE", "False"},  // PyTorch's store protocol is not supported
          {"TORCHELASTIC_ERROR_FILE", error_file},
          {"QUENCH_STORE", store},
          {"QUENCH_RDZV_TOKEN", options.token}};
}

std::vector<std::string> merged_environment(std::map<std::string, std::string> variables, int workers) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) variables.try_emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  variables.try_emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (workers > 1) variables.try_emplace("OMP_NUM_THREADS", std::to_string(threads_of_worker(workers)));
  std::vector<std::string> result;
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

}  // namespace

WorkerSet::WorkerSet(const LaunchOptions& options, const std::vector<std::string>& command, const Round& round,
                     const std::string& store, const std::filesystem::path& folder)
    : options_(options), round_(round), workers_(static_cast<std::size_t>(options.workers)) {
  std::vector<WorkerStart> starts;
  try {
    for (int local_rank = 0; local_rank < options.workers; ++local_rank) {
      Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
      worker.folder = folder / fmt::format("attempt_{}", round.number) / std::to_string(local_rank);
      std::filesystem::create_directories(worker.folder);
      worker.output = open_worker_output(options, local_rank, worker.folder);
      starts.push_back(start_of(worker, local_rank, command, store));
    }
  } catch (const std::filesystem::filesystem_error& error) {
    QUENCH_FAIL(ErrorCode::io, "cannot create the log folder {}: {}", error.path1().string(), error.code().message());
  }
  supervisor_ = std::make_unique<Supervisor>(starts);
  for (Worker& worker : workers_) {
    worker.output.files.clear();
    for (const auto& stream : worker.output.streams) stream->close_worker_end();
  }
}

WorkerStart WorkerSet::start_of(const Worker& worker, int local_rank, const std::vector<std::string>& command,
                                const std::string& store) const {
  WorkerStart start;
  start.command = command;
  start.environment = merged_environment(
      worker_variables(options_, round_, local_rank, store, (worker.folder / kErrorFile).string()), options_.workers);
  start.stdout_to = worker.output.stdout_to;
  start.stderr_to = worker.output.stderr_to;
  return start;
}

void WorkerSet::add_descriptors(std::vector<pollfd>& entries) const {
  entries.push_back({supervisor_->descriptor(), POLLIN, 0});
  for (const Worker& worker : workers_)
    for (const auto& stream : worker.output.streams) entries.push_back({stream->descriptor(), POLLIN, 0});
}

void WorkerSet::pump() {
  for (Worker& worker : workers_)
    for (const auto& stream : worker.output.streams) stream->pump();
}

void WorkerSet::reap() {
  while (const std::optional<Supervisor::Ended> ended = supervisor_->take()) end(ended->worker, ended->status);
}

void WorkerSet::end(std::size_t index, int status) {
  Worker& worker = workers_[index];
  worker.running = false;
  for (const auto& stream : worker.output.streams) stream->finish();
  const int local_rank = static_cast<int>(index), rank = round_.first_rank + local_rank;
  if (status == 0) {
    early_.push_back(rank);
    return;
  }
  if (expected_) return;
  Failure failure;
  failure.rank = rank;
  failure.local_rank = local_rank;
  failure.node = round_.node;
  failure.host = host_name();
  failure.process = supervisor_->process(index);
  failure.status = exit_code(status);
  failure.ending = describe_status(status);
  failure.time = unix_time();
  if (const std::optional<WorkerError> error = read_error_file(worker.folder / kErrorFile)) {
    failure.message = error->message;
    failure.is_echo = error->is_echo;
    failure.step = error->step;
    if (error->time > 0) failure.time = error->time;
  }
  std::error_code ignored;
  const bool has_collectives =
      std::any_of(std::filesystem::directory_iterator(worker.folder, ignored), std::filesystem::directory_iterator(),
                  [](const auto& entry) { return entry.path().filename().string().starts_with("collectives-"); });
  const bool has_files = has_collectives || options_.tee[index] != kNoStream ||
                         options_.redirects[index] != kNoStream || !options_.on_console[index];
  if (has_files) failure.logs = worker.folder.string();
  failure.early_ranks = fmt::format("{}", fmt::join(early_, ", "));
  failures_.push_back(std::move(failure));
}

void WorkerSet::signal(int number) noexcept {
  for (std::size_t i = 0; i < workers_.size(); ++i)
    if (workers_[i].running) signal_worker(supervisor_->process(i), number);
}

bool WorkerSet::all_ended() const {
  return std::none_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.running; });
}

}  // namespace quench::distributed
