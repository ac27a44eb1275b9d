#pragma once

#include "train/config/fields/field_builder.h"

namespace quench {

// Rows of section distill.
void add_distill_fields(Fields& fields);

}  // namespace quench
