// Its entry's function throws no Error of the library.
#include <stdexcept>

#include "tests/plugins/shade.h"

QUENCH_PLUGIN("failing_type", "1.0")

const quench::Registered<quench::testing::Shade> kFailing{
    []() -> quench::testing::Shade { throw std::out_of_range("shade 101"); }};
