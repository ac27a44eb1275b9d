#pragma once
// Rows of the field table by config section.

#include "train/config/fields/field_builder.h"

namespace quench {

void add_run_fields(Fields& fields);
void add_model_fields(Fields& fields);
void add_data_fields(Fields& fields);
void add_training_fields(Fields& fields);
void add_optimizer_fields(Fields& fields);
void add_recipe_fields(Fields& fields);
void add_lora_fields(Fields& fields);
void add_parallel_fields(Fields& fields);
void add_output_fields(Fields& fields);
void add_export_fields(Fields& fields);

}  // namespace quench
