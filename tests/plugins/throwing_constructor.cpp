// An exception leaves its static initialization.
#include <stdexcept>

#include "tests/plugins/shade.h"

QUENCH_PLUGIN("throwing_constructor", "1.0")

namespace {
int lightness() {
  throw std::runtime_error("no light\x1b[2J");
}
const quench::Registered<quench::testing::Shade> kShade{{.name = "dim", .lightness = lightness()}};
}  // namespace
