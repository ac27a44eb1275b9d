#pragma once
// Public API of module engine: continuous batching of generation over a paged KV cache. Namespace quench.

#include "engine/engine.h"
#include "engine/sampling.h"
#include "quench/nn.h"
