// quench VERB ...: parses the command line, runs one verb, maps errors to messages and exit statuses.

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "apps/command.h"
#include "apps/command_line.h"
#include "apps/run.h"
#include "apps/standard_output.h"
#include "apps/thread_waiting.h"
#include "apps/verbs.h"
#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/plugin.h"
#include "core/system/printable.h"
#include "core/system/signals.h"
#include "data/text/tokenize.h"
#include "distributed/communication_error.h"
#include "distributed/launcher/error_file.h"
#include "train/doctor/build_info.h"
#include "train/metrics/terminal.h"

namespace {

// Exit status: 0 success, 1 failure, 2 bad usage or config, 3 corrupt data, 4 run folder in use, 75 another rank hangs,
// 128 + signal.
int exit_status(quench::ErrorCode code) {
  switch (code) {
    case quench::ErrorCode::bad_config: return 2;
    case quench::ErrorCode::corrupt: return 3;
    case quench::ErrorCode::locked: return 4;
    default: return 1;
  }
}

// Prints the message, escaped: it may quote files and arguments. Also reported to the launcher; `is_echo`: caused by
// another rank's failure; `is_shared`: all ranks make the same mistake.
void print_error(const char* message, bool is_echo = false, bool is_shared = false) {
  if (!is_shared || quench::distributed::prints_shared_errors())
    std::fprintf(stderr, "error: %s\n", quench::printable(message).c_str());
  quench::distributed::write_error_file(message, is_echo);
}

// A failed write of results is an error; no message for a closed pipe, and no failure of a training run.
int finish_output(const quench::CommandLine& command_line, int status) {
  const int error = quench::finish_standard_output();
  if (error == 0 || status != 0) return status;
  if (error == EPIPE) {
    const std::optional<quench::Command> train = command_line.program().find_command("train");
    return train && train->given() ? 0 : 128 + SIGPIPE;
  }
  print_error(("cannot write to standard output: " + quench::errno_text(error)).c_str());
  return 1;
}

// Loads the plug-ins named before the verb, as --plugin FILE or --plugin=FILE, and takes them off the words.
std::vector<std::string> load_plugins(std::vector<std::string> words) {
  constexpr std::string_view kOption = "--plugin";
  while (!words.empty() && words.front().starts_with(kOption)) {
    const bool apart = words.front() == kOption;
    if (!apart && words.front()[kOption.size()] != '=') break;
    QUENCH_CHECK_AS(quench::ErrorCode::bad_config, !apart || words.size() > 1,
                    "--plugin needs the file of a shared library, as in quench --plugin libmine.so train run.json");
    (void)quench::load_plugin(apart ? words[1] : words.front().substr(kOption.size() + 1));
    words.erase(words.begin(), words.begin() + (apart ? 2 : 1));
  }
  return words;
}

int run(quench::CommandLine& command_line, int argc, char** argv) {
  const quench::Command app = command_line.program();
  try {
    quench::open_standard_streams();
    quench::install_standard_output();
    std::signal(SIGXFSZ, SIG_IGN);  // A file size limit is reported as a write error, which names the file.
    quench::init_logging();
    const std::vector<std::string> arguments =
        quench::replace_help_word(quench::skip_separator(load_plugins({argv + 1, argv + argc})));
    std::vector<std::string> plugins;  // loaded above; for the help
    app.add_option("--plugin", plugins,
                   "Shared library that registers recipes, ops, formats or models; before the verb, may be repeated")
        .type_name("FILE");
    app.footer(
        "`quench VERB --help` lists the options of a verb; `quench config ls` lists ready models and runs.\n"
        "First steps: docs/guide/getting-started.md\n"
        "Example: quench train shakespeare_char --data.train=input.txt");
    quench::add_train_verb(app);
    quench::add_tune_verb(app);
    quench::add_run_verb(app);
    quench::add_tokenize_verb(app);
    quench::add_distill_targets_verb(app);
    quench::add_best_of_verb(app);
    quench::add_eval_verb(app);
    quench::add_generate_verb(app);
    quench::add_bench_verb(app);
    quench::add_serve_verb(app);
    quench::add_forward_verb(app);
    quench::add_export_verb(app);
    quench::add_merge_lora_verb(app);
    quench::add_quantize_verb(app);
    quench::add_inspect_verb(app);
    quench::add_pull_verb(app);
    quench::add_push_verb(app);
    quench::add_estimate_verb(app);
    quench::add_plan_verb(app);
    quench::add_probe_verb(app);
    quench::add_config_verb(app);
    quench::add_report_verb(app);
    quench::add_doctor_verb(app);
    quench::add_completion_verb(app);
    for (const std::string& problem :
         {quench::option_before_verb(app, arguments), quench::unknown_verb(app, arguments)})
      QUENCH_CHECK_AS(quench::ErrorCode::bad_config, problem.empty(), "{}", problem);
    std::vector<std::string> words = quench::split_launched_words(app, arguments);
    const quench::CommandLine::Outcome outcome = command_line.run(std::move(words));
    std::fputs(outcome.output.c_str(), stdout);
    if (quench::distributed::prints_shared_errors()) std::fputs(quench::printable(outcome.errors).c_str(), stderr);
    if (outcome.status != 0) quench::distributed::write_error_file(outcome.errors, false);
    return outcome.status;
  } catch (const quench::ExitRequest& request) {
    return request.status;
  } catch (const quench::TokenizationStopped& stopped) {
    QUENCH_LOG_WARN("stopped by {}: {}", quench::signal_text(stopped.reason()), stopped.what());
    return quench::exit_status_of_signal(stopped.reason());
  } catch (const quench::Error& error) {
    const bool late_rank = dynamic_cast<const quench::distributed::CollectiveTimeout*>(&error) != nullptr;
    const bool is_echo = dynamic_cast<const quench::distributed::CommunicationError*>(&error) != nullptr ||
                         dynamic_cast<const quench::distributed::RelayedError*>(&error) != nullptr;
    print_error(error.what(), !late_rank && is_echo, error.code() == quench::ErrorCode::bad_config);
    QUENCH_LOG_DEBUG("raised at {}:{} ({})", error.where().file_name(), error.where().line(),
                     quench::to_string(error.code()));
    return late_rank ? quench::distributed::kTimeoutStatus : exit_status(error.code());
  } catch (const std::bad_alloc&) {
    print_error("out of host memory");
    return 1;
  } catch (const std::filesystem::filesystem_error& error) {
    const bool too_long = error.code() == std::errc::filename_too_long;
    const std::string path = error.path1().string();
    print_error(fmt::format("{}{}{}{}", path, path.empty() ? "" : ": ", error.code().message(),
                            too_long ? " (at most 255 bytes between two slashes, 4095 in all)" : "")
                    .c_str());
    return too_long ? 2 : 1;
  } catch (const std::system_error& error) {
    const bool no_thread = error.code() == std::errc::resource_unavailable_try_again;
    print_error(no_thread
                    ? fmt::format("cannot start a thread: {}; raise the limit of processes and threads (ulimit -u)",
                                  error.code().message())
                          .c_str()
                    : error.what());
    return 1;
  } catch (const std::exception& error) {
    print_error(error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  quench::choose_thread_waiting(argv);
  quench::CommandLine command_line("Quench pre-trains and fine-tunes Llama-family language models.", "quench",
                                   quench::build_info_text);
  return finish_output(command_line, run(command_line, argc, argv));
}
