#pragma once

#include "train/config/fields/field_builder.h"

namespace quench {

// Rows of section preference.
void add_preference_fields(Fields& fields);

}  // namespace quench
