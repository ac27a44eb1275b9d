// Registers a recipe of a name that is taken.
#include "quench/plugin.h"

QUENCH_PLUGIN("taken_recipe", "1.0")

const quench::Registered<quench::recipes::Recipe> kTaken{{.name = "mxfp8", .summary = "another", .plan = nullptr}};
