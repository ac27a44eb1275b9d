#pragma once
// Public API of module export: quantization schemes and file formats of written models, families in GGUF files.
// Namespace quench.

#include "export/formats/gguf/architectures/architecture.h"
#include "export/ptq/quantize_model.h"
#include "export/schemes/scheme.h"
#include "export/table/format.h"
#include "quench/data.h"
#include "quench/recipes.h"
