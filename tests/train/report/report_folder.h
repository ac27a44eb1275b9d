#pragma once
// Run folder that a test of the report fills.

#include <gtest/gtest.h>

#include "tests/testing.h"
#include "train/report/run_json.h"

namespace quench::testing {

class ReportFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const auto path = dir_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    write_file(path, text);
  }
  // Data of the page.
  [[nodiscard]] Json data() const { return run_json(load_run(dir_.path())); }
  [[nodiscard]] std::string text(const char* key) const { return data().at(key).dump(); }

  TempDir dir_;
};

}  // namespace quench::testing
