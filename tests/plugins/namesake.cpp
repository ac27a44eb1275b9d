// Another plug-in of the name of shade.cpp.
#include "tests/plugins/shade.h"

QUENCH_PLUGIN("shade", "2.0")
