// quench run: launcher of a run's processes on one or several nodes.

#include <cctype>
#include <memory>

#include "apps/run.h"
#include "apps/verbs.h"
#include "core/system/check.h"
#include "core/system/plugin.h"
#include "distributed/launcher/agent.h"

namespace quench {
namespace {

using distributed::LaunchFlags;

constexpr const char* kVerb = "run";
constexpr const char* kThisProgram = "/proc/self/exe";

// Words of the launched command, kept from the parser, which would interpret verb names among them.
std::vector<std::string>& launched_words() {
  static std::vector<std::string> words;
  return words;
}

// torchrun accepts dashes and underscores in options.
std::string with_dashes(std::string word) {
  if (!word.starts_with("--")) return word;
  for (std::size_t i = 0; i < word.size() && word[i] != '='; ++i)
    if (word[i] == '_') word[i] = '-';
  return word;
}

// True if the next word is this option's value.
bool takes_next(const Command& verb, const std::string& word) {
  if (word.find('=') != std::string::npos) return false;
  if (!word.starts_with("--") && word.size() > 2) return false;  // -t3
  const std::optional<CommandOption> option = verb.find_option(word);
  return option && option->most_values() > 0;
}

void run(const Command& program, const LaunchFlags& flags) {
  std::vector<std::string> command = launched_words();
  QUENCH_CHECK_AS(ErrorCode::bad_config, !command.empty(),
                  "quench run needs a program to run: a verb with its arguments, or -- and a program");
  const bool is_verb = program.find_command(command.front()).has_value();
  const std::string title = is_verb ? program.name() + " " + command.front() : command.front();
  if (is_verb) {
    std::vector<std::string> start = {kThisProgram};
    for (const LoadedPlugin& plugin : loaded_plugins()) start.push_back("--plugin=" + plugin.path.string());
    command.insert(command.begin(), start.begin(), start.end());
  }
  const int status = distributed::launch(distributed::read_launch_flags(flags), command, title);
  if (status != 0) throw ExitRequest{status};
}

// torchrun's environment variable of an option: PET_TEE for "-t,--tee".
std::string variable_of(std::string_view names) {
  std::string variable = "PET_";
  for (const char c : names.substr(names.find("--") + 2))
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
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
  const auto add = [&verb](const std::string& names, auto& target, const std::string& help) {
    verb.add_option(names, target, help).environment(variable_of(names));
  };
  add("--nnodes", flags->nnodes, "Number of nodes");
  add("--nproc-per-node", flags->nproc_per_node, "Processes on this node: a number, gpu, cpu or auto");
  add("--node-rank", flags->node_rank, "This node's number, with --master-addr");
  add("--master-addr", flags->master_addr, "Node 0, where nodes are numbered by hand");
  add("--master-port", flags->master_port, "Node 0's port (29500); alone: MASTER_PORT of the processes");
  add("--rdzv-backend", flags->rdzv_backend, "static (--master-addr) or c10d (--rdzv-endpoint)");
  add("--rdzv-endpoint", flags->rdzv_endpoint, "HOST[:PORT] (29400) of the rendezvous");
  add("--rdzv-id", flags->rdzv_id, "The job's name, the same on all nodes");
  add("--rdzv-conf", flags->rdzv_conf, "join_timeout=SECONDS (600)");
  add("--rdzv-token-file", flags->rdzv_token_file,
      "File with the job's secret, the same on all nodes (or QUENCH_RDZV_TOKEN)");
  verb.add_flag("--standalone", flags->standalone, "One node, on loopback").environment(variable_of("--standalone"));
  add("--max-restarts", flags->max_restarts, "Restarts of all processes after a failure");
  add("--restart-backoff", flags->restart_backoff,
      "FIRST:MOST seconds before a restart (1:60): doubled each time, reset by an attempt longer than MOST");
  add("--monitor-interval", flags->monitor_interval, "Seconds between checks of the processes");
  add("--shutdown-timeout", flags->shutdown_timeout, "Seconds between SIGTERM and SIGKILL");
  add("--role", flags->role, "Prefix of the processes' lines");
  add("--log-dir", flags->log_dir, "Folder for the processes' output");
  add("-r,--redirects", flags->redirects,
      "Output that goes to files: 0 none, 1 stdout, 2 stderr, 3 both, or 0:3,1:2 by local rank");
  add("-t,--tee", flags->tee, "The same, to files and the console, with a prefix to each line");
  add("--local-ranks-filter", flags->local_ranks_filter, "Local ranks whose output goes to the console (0,1)");
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
