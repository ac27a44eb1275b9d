// Library versions of `quench --version` for tokenizers.

#include "core/device/library_versions.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

namespace quench {
namespace {

// "10.42" of "10.42 2022-12-11".
std::string pcre2_version() {
  char text[64] = {};
  pcre2_config(PCRE2_CONFIG_VERSION, text);
  const std::string whole = text;
  return whole.substr(0, whole.find(' '));
}

[[maybe_unused]] const bool registered[] = {
    register_library("PCRE2", pcre2_version),
    register_library("SentencePiece", []() -> std::string { return QUENCH_SENTENCEPIECE_VERSION; }),
    register_library("utf8proc", []() -> std::string { return utf8proc_version(); }),
};

}  // namespace
}  // namespace quench
