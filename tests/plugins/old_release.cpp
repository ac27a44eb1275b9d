// Says that it was compiled for an earlier release.
#include "quench/plugin.h"

#undef QUENCH_VERSION
#define QUENCH_VERSION "0.1.3"
QUENCH_PLUGIN("old", "1.0")
