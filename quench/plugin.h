#pragma once
// For plug-ins (core/system/plugin.h): registration of recipes, ops, optimizers, formats and models from a shared
// library.

#include "core/system/plugin.h"
#include "quench/recipes.h"
