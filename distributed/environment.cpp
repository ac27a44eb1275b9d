#include "distributed/environment.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"

namespace quench::distributed {
namespace {

constexpr int kMaxWorld = 1 << 20;
constexpr std::uint64_t kTokenFileBytes = 4096;
constexpr int kFirstDerivedPort = 20000;  // below usual ephemeral ports
constexpr int kDerivedPorts = 10000;

// Environment variables of one launcher; nullptr: none.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size[2];  // in order of precedence
  const char* local_rank;
  const char* local_size;
  const char* proof;   // set only for processes of the launcher; nullptr: `rank` suffices
  const char* job[2];  // job name, in order of precedence
};

constexpr std::array<Launcher, 4> kLaunchers = {{
    {"RANK and WORLD_SIZE", "RANK", {"WORLD_SIZE"}, "LOCAL_RANK", "LOCAL_WORLD_SIZE", nullptr, {"TORCHELASTIC_RUN_ID"}},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_SIZE"},
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     nullptr,
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    // A batch script also has SLURM_NTASKS, but no step. In salloc's interactive step it is that of the allocation.
    {"Slurm",
     "SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     "SLURM_LOCALID",
     nullptr,
     "SLURM_STEP_ID",
     {"SLURM_JOB_ID"}},
    {"MPICH", "PMI_RANK", {"PMI_SIZE"}, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr, {nullptr, nullptr}},
}};

class Reader {
 public:
  explicit Reader(const GetVariable& variable) : variable_(variable) {}

  [[nodiscard]] std::string text(const char* name) const {
    const char* value = name == nullptr ? nullptr : variable_(name);
    return value == nullptr ? std::string() : std::string(value);
  }
  [[nodiscard]] std::optional<int> number(const char* name, int least, int most) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    int result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    QUENCH_CHECK_AS(ErrorCode::bad_config,
                    error == std::errc() && end == value.data() + value.size() && result >= least && result <= most,
                    "the environment variable {} is '{}', expected a number from {} to {}", name, value, least, most);
    return result;
  }

 private:
  const GetVariable& variable_;
};

struct Place {
  const Launcher* launcher = nullptr;
  const char* size_name = nullptr;  // its variable of the size
  int rank = 0;
  int size = 1;
};

// Nothing if this launcher has not started the process.
std::optional<Place> place_by(const Launcher& launcher, const Reader& read) {
  if (launcher.proof != nullptr && read.text(launcher.proof).empty()) return std::nullopt;
  const std::optional<int> rank = read.number(launcher.rank, 0, kMaxWorld);
  const char* size_name = launcher.size[read.text(launcher.size[0]).empty() && launcher.size[1] != nullptr ? 1 : 0];
  const std::optional<int> size = read.number(size_name, 1, kMaxWorld);
  if (!rank && !size) return std::nullopt;
  QUENCH_CHECK_AS(ErrorCode::bad_config, rank && size,
                  "the environment has {} but not {}: {} needs both (or unset it to run alone)",
                  rank ? launcher.rank : size_name, rank ? size_name : launcher.rank, launcher.name);
  QUENCH_CHECK_AS(ErrorCode::bad_config, *rank < *size, "{}={} is outside {}={}: ranks go from 0 to {}", launcher.rank,
                  *rank, size_name, *size, *size - 1);
  return Place{&launcher, size_name, *rank, *size};
}

// Variables set by hand must not contradict the launcher's. A process launcher (with a run id) takes precedence inside
// a Slurm or MPI task, one per node.
Place find_place(const Reader& read) {
  Place place;
  const bool by_agent = !read.text("TORCHELASTIC_RUN_ID").empty();
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<Place> said = place_by(launcher, read);
    if (!said) continue;
    if (place.launcher == nullptr) {
      place = *said;
      if (by_agent) break;
      continue;
    }
    // mpirun starts its daemons as Slurm tasks: counts are the daemons'.
    if (place.launcher != &kLaunchers.front()) continue;
    QUENCH_CHECK_AS(ErrorCode::bad_config, said->rank == place.rank && said->size == place.size,
                    "the environment contradicts itself: {}={} and {}={}, but {}={} and {}={} ({}); unset one pair",
                    place.launcher->rank, place.rank, place.size_name, place.size, launcher.rank, said->rank,
                    said->size_name, said->size, launcher.name);
  }
  return place;
}

std::string job_name(const Launcher& launcher, const Reader& read) {
  for (const char* name : launcher.job)
    if (const std::string job = read.text(name); !job.empty()) return job;
  return {};
}

// FNV-1a: equal on all ranks; std::hash may differ between machines.
int derived_port(std::string_view job) {
  std::uint32_t hash = 2166136261u;
  for (const char c : job) hash = (hash ^ static_cast<std::uint8_t>(c)) * 16777619u;
  return kFirstDerivedPort + static_cast<int>(hash % kDerivedPorts);
}

std::string read_token(const Reader& read) {
  if (std::string token = read.text("QUENCH_RDZV_TOKEN"); !token.empty()) return token;
  const std::string file = read.text("QUENCH_RDZV_TOKEN_FILE");
  if (file.empty()) return {};
  return read_token_file(file, "QUENCH_RDZV_TOKEN_FILE");
}

void find_local_place(Environment& environment, const Launcher& launcher, const Reader& read) {
  std::optional<int> size = read.number(launcher.local_size, 1, kMaxWorld);
  if (!size && launcher.local_size == nullptr) {  // Slurm: compressed tasks per node
    std::string counts = read.text("SLURM_STEP_TASKS_PER_NODE");
    if (counts.empty()) counts = read.text("SLURM_TASKS_PER_NODE");
    size = std::max(1, count_of_node(counts, read.number("SLURM_NODEID", 0, kMaxWorld).value_or(0)));
  }
  const std::optional<int> rank = read.number(launcher.local_rank, 0, kMaxWorld);
  QUENCH_CHECK_AS(ErrorCode::bad_config, rank || environment.world_size == 1,
                  "the environment has {} but not {}: which of its machine's processes is this one?", launcher.rank,
                  launcher.local_rank);
  environment.local_rank = rank.value_or(0);
  environment.local_world_size = size.value_or(environment.local_rank + 1);
  QUENCH_CHECK_AS(
      ErrorCode::bad_config,
      environment.local_rank < environment.local_world_size && environment.local_world_size <= environment.world_size,
      "{}={} of {} ranks on this machine and {} in all: that cannot be", launcher.local_rank, environment.local_rank,
      environment.local_world_size, environment.world_size);
}

// MASTER_PORT. torchrun's agent serves PyTorch's store there itself: another port then. The count of restarts is no
// part of it, since torchrun's differs between nodes after a failure.
int find_port(const Environment& environment, const Reader& read) {
  const std::optional<int> port = read.number("MASTER_PORT", 1, 65535);
  if (port && environment.store.empty() && read.text("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    const int derived = derived_port(fmt::format("{}/{}", environment.job, *port));
    return derived == *port ? derived + 1 : derived;
  }
  if (port || environment.job.empty()) return port.value_or(0);
  return derived_port(environment.job + "/" + read.text("SLURM_STEP_ID") + read.text("SLURM_RESTART_COUNT"));
}

void find_master(Environment& environment, const Launcher& launcher, const Reader& read) {
  environment.master_host = read.text("MASTER_ADDR");
  environment.master_port = find_port(environment, read);
  if (environment.master_host.empty()) {
    std::string hosts = read.text("SLURM_STEP_NODELIST");
    if (hosts.empty()) hosts = read.text("SLURM_JOB_NODELIST");
    if (&launcher != &kLaunchers.front() && environment.local_world_size == environment.world_size)
      environment.master_host = "127.0.0.1";
    else if (launcher.proof != nullptr)
      environment.master_host = first_host(hosts);
  }
  if (!environment.store.empty() || environment.world_size == 1) return;
  QUENCH_CHECK_AS(ErrorCode::bad_config, !environment.master_host.empty() && environment.master_port != 0,
                  "{} says that this is rank {} of {}, but not where rank 0 is: set {} for all ranks", launcher.name,
                  environment.rank, environment.world_size,
                  environment.master_host.empty() ? "MASTER_ADDR to the name of rank 0's machine" : "MASTER_PORT");
}

}  // namespace

std::string read_token_file(const std::string& file, std::string_view what) {
  std::string token = read_file(file, kTokenFileBytes);
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  QUENCH_CHECK_AS(ErrorCode::bad_config, !token.empty(), "{}: {} is empty", what, file);
  std::error_code error;
  const auto permissions = std::filesystem::status(file, error).permissions();
  constexpr auto kOthers = std::filesystem::perms::group_all | std::filesystem::perms::others_all;
  if (!error && (permissions & kOthers) != std::filesystem::perms::none)
    QUENCH_LOG_WARN("{}: {} has mode {:04o}, so other users can read the token of this job: chmod 600 {}", what, file,
                    static_cast<unsigned>(permissions & std::filesystem::perms::mask), file);
  return token;
}

std::string first_host(std::string_view list) {
  const std::size_t bracket = list.find('[');
  if (bracket == std::string_view::npos || list.find(',') < bracket) return std::string(list.substr(0, list.find(',')));
  const std::string_view numbers = list.substr(bracket + 1);
  const std::size_t close = list.find(']', bracket);
  const std::string_view behind = close == std::string_view::npos ? "" : list.substr(close + 1);
  std::string host(list.substr(0, bracket));
  host += numbers.substr(0, numbers.find_first_of("-,]"));
  return host.append(behind.substr(0, behind.find(',')));
}

int count_of_node(std::string_view counts, int node) {
  int first = 0;
  while (!counts.empty()) {
    const std::string_view entry = counts.substr(0, counts.find(','));
    counts.remove_prefix(std::min(counts.size(), entry.size() + 1));
    int count = 0, times = 1;
    std::from_chars(entry.data(), entry.data() + entry.size(), count);
    if (const std::size_t x = entry.find("(x"); x != std::string_view::npos)
      std::from_chars(entry.data() + x + 2, entry.data() + entry.size(), times);
    first += times;
    if (node < first) return count;
  }
  return 0;
}

Environment read_environment() {
  return read_environment([](const char* name) { return std::getenv(name); });
}

Environment read_environment(const GetVariable& variable) {
  const Reader read(variable);
  const Place place = find_place(read);
  Environment environment;
  if (place.launcher == nullptr) return environment;
  environment.launcher = place.launcher->name;
  environment.by_agent = place.launcher == &kLaunchers.front() && !read.text("TORCHELASTIC_RUN_ID").empty();
  environment.rank = place.rank;
  environment.world_size = place.size;
  environment.job = job_name(*place.launcher, read);
  environment.restart = read.number("TORCHELASTIC_RESTART_COUNT", 0, kMaxWorld).value_or(0);
  environment.max_restarts = read.number("TORCHELASTIC_MAX_RESTARTS", 0, kMaxWorld).value_or(0);
  environment.store = read.text("QUENCH_STORE");
  environment.token = read_token(read);
  find_local_place(environment, *place.launcher, read);
  find_master(environment, *place.launcher, read);
  return environment;
}

}  // namespace quench::distributed
