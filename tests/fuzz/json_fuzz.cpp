// JSON text: no input crashes the parser, and what it accepts survives being written and read again.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/json/json.h"

namespace {

void check(bool condition) {
  if (!condition) std::abort();
}

void try_text(std::string_view text, bool allow_comments) {
  quench::Json::ParseOptions options;
  options.allow_comments = allow_comments;
  quench::Json json;
  try {
    json = quench::Json::parse(text, options);
  } catch (const quench::Error& error) {
    check(error.code() == quench::ErrorCode::corrupt);
    return;
  }
  check(json.line() >= 1 && json.column() >= 1);
  for (const int indent : {-1, 2}) {
    const std::string written = json.dump(indent);
    const quench::Json again = quench::Json::parse(written);
    check(again == json);
    check(again.dump(indent) == written);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_text(text, false);
  try_text(text, true);
  return 0;
}
