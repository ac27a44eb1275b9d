// Schemas and expressions of requests: faults are Errors.

#include "core/json/json.h"
#include "core/system/check.h"
#include "engine/grammar/schema_keywords.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    quench::check_expression(text, "the expression");
  } catch (const quench::Error&) {
  }
  try {
    quench::check_schema(quench::Json::parse(text));
  } catch (const quench::Error&) {
  }
  return 0;
}
