// Runs a fuzz target on the files of its seed folder, in builds without libFuzzer: seeds and past findings are tested
// with every compiler.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include "core/system/file.h"
#include "core/system/log.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  quench::init_logging();
  int inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    const std::string bytes = quench::read_file(entry.path(), std::uint64_t{1} << 30);
    std::printf("%s\n", entry.path().filename().c_str());
    std::fflush(stdout);  // so that the last name printed is the input that crashes
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    ++inputs;
  }
  return inputs > 0 ? 0 : 1;
}
