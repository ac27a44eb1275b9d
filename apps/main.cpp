// quench VERB ...: parses the command line, runs one verb, turns errors into messages and exit statuses.

#include <cstdio>
#include <exception>
#include <new>

#include "apps/command_line.h"
#include "apps/thread_waiting.h"
#include "apps/verbs.h"
#include "core/check.h"
#include "core/log.h"
#include "train/build_info.h"
#include "train/metrics/terminal.h"

namespace {

// 0 done, 1 failed, 2 bad usage or config, 3 stored data are damaged, 4 the run folder is in use; 128 + signal is set
// by the train verb.
int exit_status(quench::ErrorCode code) {
  switch (code) {
    case quench::ErrorCode::bad_config: return 2;
    case quench::ErrorCode::corrupt: return 3;
    case quench::ErrorCode::locked: return 4;
    default: return 1;
  }
}

void print_error(const char* message) {
  std::fprintf(stderr, "error: %s\n", message);
}

}  // namespace

int main(int argc, char** argv) {
  quench::choose_thread_waiting(argv);
  CLI::App app("Quench pre-trains and fine-tunes Llama-family language models.", "quench");
  app.set_version_flag("--version", quench::build_info_text, "Version, commit, compiler and libraries");
  app.require_subcommand(1);
  try {
    quench::open_standard_streams();
    quench::init_logging();
    quench::add_train_verb(app);
    quench::add_tokenize_verb(app);
    quench::add_eval_verb(app);
    quench::add_generate_verb(app);
    quench::add_forward_verb(app);
    quench::add_export_verb(app);
    quench::add_inspect_verb(app);
    quench::add_estimate_verb(app);
    quench::add_probe_verb(app);
    quench::add_config_verb(app);
    quench::add_report_verb(app);
    quench::add_completion_verb(app);
    if (const std::string unknown = quench::unknown_verb(app, argc, argv); !unknown.empty())
      QUENCH_FAIL(quench::ErrorCode::bad_config, "{}", unknown);
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();  // stopped by a signal
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const quench::Error& error) {
    print_error(error.what());
    spdlog::debug("raised at {}:{} ({})", error.where().file_name(), error.where().line(),
                  quench::to_string(error.code()));
    return exit_status(error.code());
  } catch (const std::bad_alloc&) {
    print_error("out of host memory");
    return 1;
  } catch (const std::exception& error) {
    print_error(error.what());
    return 1;
  }
}
