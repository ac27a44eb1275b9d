#include <gtest/gtest.h>

#include <cstdlib>

#include "core/system/log.h"
#include "tests/core/system/silent_program.h"
#include "tests/testing.h"

namespace quench::testing {

std::filesystem::path source_dir() {
  return QUENCH_SOURCE_DIR;
}
std::string program_path() {
  const char* path = std::getenv("QUENCH_PROGRAM");  // location of a packed program
  return path != nullptr && *path != '\0' ? path : QUENCH_PROGRAM;
}
std::string fault_shim_path() {
  return QUENCH_FAULT_SHIM;
}
std::string checkpoint_driver_path() {
  return QUENCH_CHECKPOINT_DRIVER;
}
std::string fake_library_path() {
  return QUENCH_FAKE_LIBRARY;
}
std::string group_driver_path() {
  return QUENCH_GROUP_DRIVER;
}
std::string silent_program_path() {
  return QUENCH_SILENT_PROGRAM;
}
std::filesystem::path plugin_path(const std::string& name) {
  return std::filesystem::path(QUENCH_PLUGIN_FOLDER) / ("lib" + name + ".so");
}

}  // namespace quench::testing

int main(int argc, char** argv) {
#ifdef QUENCH_ARROW_MODULE
  setenv("QUENCH_ARROW_LIBRARY", QUENCH_ARROW_MODULE, 0);
#endif
  quench::init_logging();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
