// A config file and overrides from anywhere: they are read, or refused with a list of reasons; nothing else happens.
// What was read prints to a document that reads back equal.
//
// Input: the file, then a NUL, then one override argument a line.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "train/check/load.h"
#include "train/config/config_diff.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  std::vector<std::string> overrides;
  for (std::size_t begin = end + 1; begin < input.size();) {
    const std::size_t line = std::min(input.find('\n', begin), input.size());
    overrides.emplace_back(input.substr(begin, line - begin));
    begin = line + 1;
  }
  const quench::CheckOptions options{.data = false, .files = false};
  try {
    const quench::RunConfig config = quench::parse_run_config(input.substr(0, end), "fuzz.json", overrides, options);
    const std::string text = quench::to_json(config).dump(2);
    const quench::RunConfig again = quench::parse_run_config(text, "again.json", {}, options);
    require(config == again);
    require(quench::config_diff(config, again).empty());
  } catch (const quench::ConfigError& error) {
    require(!error.issues().empty());
  }
  return 0;
}
