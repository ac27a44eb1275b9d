// Its entry cannot be made; the one after it can.
#include "tests/plugins/shade.h"

QUENCH_PLUGIN("failing_entry", "1.0")

const quench::Registered<quench::testing::Shade> kFailing{
    []() -> quench::testing::Shade { QUENCH_FAIL(quench::ErrorCode::not_found, "shades.txt does not exist"); }};
const quench::Registered<quench::testing::Shade> kMade{
    [] { return quench::testing::Shade{.name = "dark", .lightness = 10}; }};
