#pragma once
// Public API of module recipes: low-precision training schemes of linear layers, experts and embeddings, LoRA and
// quantized bases, packed inference. Namespace quench::recipes.

#include "quench/nn.h"
#include "recipes/convert.h"
#include "recipes/lora/adapters.h"
#include "recipes/lora/quantized_base.h"
#include "recipes/packed_linear.h"
#include "recipes/qat/qat_linear.h"
#include "recipes/recipe.h"
