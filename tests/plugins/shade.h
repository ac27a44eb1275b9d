#pragma once
// Entry of the table that the plug-ins of plugin_test.cpp extend.

#include <string_view>

#include "quench/plugin.h"

namespace quench::testing {

struct Shade {
  std::string_view name;
  int lightness = 0;
};

}  // namespace quench::testing
