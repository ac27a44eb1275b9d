// quench doctor: GPUs, libraries, recipes and the self-test of the kernels.

#include <cstdio>
#include <memory>

#include "apps/common.h"
#include "apps/verbs.h"
#include "train/doctor/diagnosis.h"

namespace quench {

void add_doctor_verb(const Command& app) {
  const auto json = std::make_shared<bool>(false);
  const Command verb = app.add_command("doctor", "Check GPUs, drivers, libraries and kernels");
  verb.add_flag("--json", *json, "Print the result as JSON, without user names and paths, for bug reports");
  verb.footer(
      "Lists the GPUs, the libraries with their versions and places, and for each GPU which recipes run natively, on\n"
      "a fallback, or emulated; compares every family of kernels with stored vectors, and with several GPUs checks\n"
      "peer access and an all-reduce by NCCL. Status 1 if a check fails. `quench train` makes the same self-test at\n"
      "its first start on a GPU and switches failing families to their fallbacks.");
  verb.on_run([json] {
    const Diagnosis diagnosis = diagnose();
    if (*json)
      print_json(to_json(diagnosis));
    else
      std::fputs(to_string(diagnosis).c_str(), stdout);
    if (!diagnosis.healthy()) throw ExitRequest{1};
  });
}

}  // namespace quench
