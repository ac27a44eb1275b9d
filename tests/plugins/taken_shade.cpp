// Registers a name that the table has.
#include "tests/plugins/shade.h"

QUENCH_PLUGIN("taken_shade", "1.0")

const quench::Registered<quench::testing::Shade> kBlack{{.name = "black", .lightness = 1}};
