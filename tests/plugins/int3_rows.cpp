// Registers the recipe of tests/seams.
#include "quench/plugin.h"
#include "tests/seams/added_recipe.h"

QUENCH_PLUGIN("int3_rows", "0.3")
