// quench run: starts the processes of a run, on one node or on several, and watches them.

#include <memory>

#include "apps/run.h"
#include "apps/verbs.h"
#include "core/system/check.h"
#include "distributed/launcher/agent.h"

namespace quench {
namespace {

using distributed::LaunchFlags;

constexpr const char* kVerb = "run";
constexpr const char* kThisProgram = "/proc/self/exe";

// What stands behind the launcher's own words. The parser would take the name of a verb there for the end of this
// one's words.
std::vector<std::string>& launched_words() {
  static std::vector<std::string> words;
  return words;
}

// torchrun spells its options with dashes and with underscores.
std::string with_dashes(std::string word) {
  if (!word.starts_with("--")) return word;
  for (std::size_t i = 0; i < word.size() && word[i] != '='; ++i)
    if (word[i] == '_') word[i] = '-';
  return word;
}

// Whether the word behind this one is its value.
bool takes_next(const Command& verb, const std::string& word) {
  if (word.find('=') != std::string::npos) return false;
  if (!word.starts_with("--") && word.size() > 2) return false;  // -t3
  const std::optional<CommandOption> option = verb.find_option(word);
  return option && option->most_values() > 0;
}

void run(const Command& program, const LaunchFlags& flags) {
  std::vector<std::string> command = launched_words();
  QUENCH_CHECK_AS(ErrorCode::bad_config, !command.empty(),
                  "quench run needs what it is to run: a verb with its arguments, or -- and a program");
  const bool is_verb = program.find_command(command.front()).has_value();
  const std::string title = is_verb ? program.name() + " " + command.front() : command.front();
  if (is_verb) command.insert(command.begin(), kThisProgram);
  const int status = distributed::launch(distributed::read_launch_flags(flags), command, title);
  if (status != 0) throw ExitRequest{status};
}

}  // namespace

std::vector<std::string> split_launched_words(const Command& program, std::vector<std::string> words) {
  const std::optional<Command> verb = program.find_command(kVerb);
  if (!verb || words.empty() || words.front() != kVerb) return words;
  std::size_t end = 1;
  while (end < words.size() && words[end].starts_with('-') && words[end] != "--") {
    words[end] = with_dashes(words[end]);
    end += takes_next(*verb, words[end]) ? 2 : 1;
  }
  end = std::min(end, words.size());
  const std::size_t command = end < words.size() && words[end] == "--" ? end + 1 : end;
  launched_words().assign(words.begin() + static_cast<std::ptrdiff_t>(command), words.end());
  words.resize(end);
  return words;
}

void add_run_verb(const Command& app) {
  const Command verb = app.add_command(kVerb, "Start the processes of a run on one node or several (as torchrun does)");
  const auto flags = std::make_shared<LaunchFlags>();
  verb.add_option("--nnodes", flags->nnodes, "Number of nodes").environment("PET_NNODES");
  verb.add_option("--nproc-per-node", flags->nproc_per_node, "Processes on this node: a number, gpu, cpu or auto")
      .environment("PET_NPROC_PER_NODE");
  verb.add_option("--node-rank", flags->node_rank, "This node's number, with --master-addr")
      .environment("PET_NODE_RANK");
  verb.add_option("--master-addr", flags->master_addr, "Node 0, where nodes are numbered by hand")
      .environment("PET_MASTER_ADDR");
  verb.add_option("--master-port", flags->master_port, "Node 0's port (29500); alone: MASTER_PORT of the processes")
      .environment("PET_MASTER_PORT");
  verb.add_option("--rdzv-backend", flags->rdzv_backend, "static (--master-addr) or c10d (--rdzv-endpoint)")
      .environment("PET_RDZV_BACKEND");
  verb.add_option("--rdzv-endpoint", flags->rdzv_endpoint, "HOST[:PORT] (29400) where the nodes meet")
      .environment("PET_RDZV_ENDPOINT");
  verb.add_option("--rdzv-id", flags->rdzv_id, "The job's name, the same on all nodes").environment("PET_RDZV_ID");
  verb.add_option("--rdzv-conf", flags->rdzv_conf, "join_timeout=SECONDS (600)").environment("PET_RDZV_CONF");
  verb.add_option("--rdzv-token-file", flags->rdzv_token_file,
                  "File with the job's secret, the same on all nodes (or QUENCH_RDZV_TOKEN)")
      .environment("PET_RDZV_TOKEN_FILE");
  verb.add_flag("--standalone", flags->standalone, "One node, on loopback").environment("PET_STANDALONE");
  verb.add_option("--max-restarts", flags->max_restarts, "How often all processes may start again after a failure")
      .environment("PET_MAX_RESTARTS");
  verb.add_option("--restart-backoff", flags->restart_backoff,
                  "FIRST:MOST seconds before a restart (1:60): doubled each time, begun anew by an attempt longer than "
                  "MOST")
      .environment("PET_RESTART_BACKOFF");
  verb.add_option("--monitor-interval", flags->monitor_interval, "Seconds between looks at the processes")
      .environment("PET_MONITOR_INTERVAL");
  verb.add_option("--shutdown-timeout", flags->shutdown_timeout, "Seconds between SIGTERM and SIGKILL")
      .environment("PET_SHUTDOWN_TIMEOUT");
  verb.add_option("--role", flags->role, "Name in front of the processes' lines").environment("PET_ROLE");
  verb.add_option("--log-dir", flags->log_dir, "Folder for the processes' output").environment("PET_LOG_DIR");
  verb.add_option("-r,--redirects", flags->redirects,
                  "Output that goes to files: 0 none, 1 stdout, 2 stderr, 3 both, or 0:3,1:2 by local rank")
      .environment("PET_REDIRECTS");
  verb.add_option("-t,--tee", flags->tee, "The same, to files and the console, with a prefix to each line")
      .environment("PET_TEE");
  verb.add_option("--local-ranks-filter", flags->local_ranks_filter,
                  "Local ranks whose output goes to the console (0,1)")
      .environment("PET_LOCAL_RANKS_FILTER");
  verb.footer(
      "Usage: quench run [OPTIONS] [--] VERB ...   or   quench run [OPTIONS] -- PROGRAM ...\n"
      "Every option is spelled with dashes or underscores, and can come from the environment as PET_NAME.\n"
      "Exit status: of the first process that failed (128 + signal), 143 or 130 when stopped by a signal.\n"
      "Example: quench run --standalone --nproc-per-node 2 train shakespeare_char --data.train=input.txt\n"
      "Two nodes: quench run --nnodes 2 --nproc-per-node gpu --rdzv-endpoint node0:29400 --rdzv-token-file FILE train "
      "...");
  verb.on_run([app, flags] { run(app, *flags); });
}

}  // namespace quench
