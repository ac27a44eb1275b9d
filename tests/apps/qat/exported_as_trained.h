#pragma once
// The losses that a run measures at its end: of the model as trained, and of its export.

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench::testing {

// Expects them to be equal to 1e-6.
inline void expect_exported_as_trained(const std::filesystem::path& run) {
  std::istringstream lines(read_file(run / "metrics/evaluations.jsonl"));
  double trained = 0, exported = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json row = Json::parse(line);
    (row.at("name").as_string() == "validation" ? trained : exported) = row.at("values").at("loss").as_double();
  }
  EXPECT_GT(trained, 0) << run;
  EXPECT_NEAR(exported, trained, 1e-6 * trained) << run;
}

}  // namespace quench::testing
