#pragma once
// Helpers shared by the tests: where files are, scratch folders, distances.

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>

namespace quench::testing {

// Where the build put things; defined in tests/main.cpp, so that the objects of the tests do not depend on it.
std::filesystem::path source_dir();
std::string program_path();            // the quench program
std::string fault_shim_path();         // the preloaded library of tests/fault
std::string checkpoint_driver_path();  // the program that tests/fault starts
std::string fake_library_path();       // the shared library of tests/core/system
std::string group_driver_path();       // one rank of tests/distributed

// The folder of golden vectors: $QUENCH_GOLDEN_DIR or tests/golden of the source tree.
inline std::filesystem::path golden_dir() {
  if (const char* dir = std::getenv("QUENCH_GOLDEN_DIR"); dir != nullptr && *dir != '\0') return dir;
  return source_dir() / "tests" / "golden";
}

// A fresh folder under the system's temporary folder, removed with the object.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "quench-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// ||a - b|| / ||b|| in f64.
template <class A, class B>
double relative_l2(std::span<const A> a, std::span<const B> b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double x = static_cast<float>(a[i]), y = static_cast<float>(b[i]);
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(difference / (norm > 0 ? norm : 1));
}

}  // namespace quench::testing
