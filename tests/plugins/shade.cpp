#include "tests/plugins/shade.h"

QUENCH_PLUGIN("shade", "1.5")

const quench::Registered<quench::testing::Shade> kGrey{{.name = "grey", .lightness = 50}};
