// A trainer reduced to its checkpoints, for tests that kill it or fail its file-system calls (fault_shim.cpp).
//
//   checkpoint_driver FOLDER LAST [async] [keep=K] [keep-going] [pause=MICROSECONDS] [bulk=BYTES] [again=STEP]
//                     [lock=FOLDER]
//
// Resumes from the newest checkpoint in FOLDER, checks that its content is of one step, then saves each following step
// up to LAST (and STEP once more). Prints, flushed: "resumed N", "saved N", "calls N" (counted by the shim) or
// "error CODE: MESSAGE". Exit status: 0 done, 1 an Error, 3 the resumed checkpoint mixes steps.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <unistd.h>

#include "core/system/log.h"
#include "tests/fault/checkpoint_contents.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/checkpoint_writer.h"

// Present when the shim is preloaded.
extern "C" void quench_fault_arm() __attribute__((weak));
extern "C" void quench_fault_disarm() __attribute__((weak));
extern "C" long quench_fault_calls() __attribute__((weak));

namespace {

struct Arguments {
  std::string folder;
  std::string lock;  // the run's folder
  std::int64_t last = 0;
  std::int64_t again = -1;
  std::int64_t bulk = 4096;
  unsigned pause = 0;
  quench::CheckpointOptions options;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  arguments.options.async = false;
  if (argc < 3) {
    std::fprintf(stderr, "usage: checkpoint_driver FOLDER LAST [option...]\n");
    std::exit(2);
  }
  arguments.folder = arguments.lock = argv[1];
  arguments.last = std::atoll(argv[2]);
  for (int i = 3; i < argc; ++i) {
    const std::string_view option = argv[i];
    const auto equals = option.find('=');
    const char* value = equals == std::string_view::npos ? "" : argv[i] + equals + 1;
    if (option == "async") arguments.options.async = true;
    if (option == "keep-going") arguments.options.on_error = quench::OnSaveError::keep_training;
    if (option.starts_with("keep=")) arguments.options.keep_latest = std::atoi(value);
    if (option.starts_with("pause=")) arguments.pause = static_cast<unsigned>(std::atoi(value));
    if (option.starts_with("bulk=")) arguments.bulk = std::atoll(value);
    if (option.starts_with("lock=")) arguments.lock = value;
    if (option.starts_with("again=")) arguments.again = std::atoll(value);
  }
  return arguments;
}

void print(const std::vector<quench::SaveReport>& reports) {
  for (const auto& report : reports) std::printf("saved %lld\n", static_cast<long long>(report.step));
  std::fflush(stdout);
}

int run(const Arguments& arguments) {
  quench::testing::StepTensors tensors(arguments.bulk);
  const quench::RunLock lock(arguments.lock);
  std::string difference;
  std::int64_t step = 0;
  quench::CheckpointOptions options = arguments.options;
  if (const auto info =
          quench::load_latest(arguments.folder, [&](auto& reader) { difference = tensors.difference(reader); }))
    options.resumed_from = step = info->step;
  if (!difference.empty()) {
    std::printf("mixed: %s\n", difference.c_str());
    return 3;
  }
  std::printf("resumed %lld\n", static_cast<long long>(step));
  std::fflush(stdout);
  quench::CheckpointWriter writer(arguments.folder, lock, options);
  if (quench_fault_arm != nullptr) quench_fault_arm();
  while (step < arguments.last) {
    ++step;
    writer.save(tensors.state(step), tensors.at(step));
    tensors.at(-1);  // the snapshot must not see what training does next
    print(writer.poll());
    if (arguments.pause > 0) usleep(arguments.pause);
  }
  if (arguments.again >= 0) writer.save(tensors.state(arguments.again), tensors.at(arguments.again));
  print(writer.finish());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  quench::init_logging();
  int status = 0;
  try {
    status = run(parse(argc, argv));
  } catch (const quench::Error& error) {
    std::printf("error %s: %s\n", std::string(quench::to_string(error.code())).c_str(), error.what());
    status = 1;
  }
  if (quench_fault_disarm != nullptr) quench_fault_disarm();
  if (quench_fault_calls != nullptr) std::printf("calls %ld\n", quench_fault_calls());
  return status;
}
