// A Jinja template and variables from anywhere: rendered, or refused with an Error that names the template; within
// limits of time and memory, whatever it says. What it marks lies within what it writes.
//
// Input: the template, then a NUL, then the variables as JSON.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/system/check.h"
#include "data/jinja/jinja_template.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quench;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  jinja::Map variables;
  try {
    const Json json = Json::parse(end < input.size() ? input.substr(end + 1) : "{}");
    if (!json.is_object()) return 0;
    variables = jinja::Value::from_json(json).map();
  } catch (const Error&) {
    return 0;
  }
  try {
    const jinja::Template parsed(input.substr(0, end), "fuzz",
                                 {.source_bytes = 16384, .steps = 20'000, .bytes = std::uint64_t{1} << 20});
    const jinja::Rendered rendered = parsed.render(variables);
    for (const jinja::Range& range : rendered.generations)
      require(range.begin <= range.end && range.end <= rendered.text.size());
  } catch (const Error& error) {
    require(std::string_view(error.what()).starts_with("fuzz:"));
  }
  return 0;
}
