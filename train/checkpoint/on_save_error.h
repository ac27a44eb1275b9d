#pragma once
// Policy for checkpoints that cannot be saved (config key checkpoint.on_save_error).

#include "core/system/enum_names.h"

namespace quench {

enum class OnSaveError {
  keep_training,  // log the error; CheckpointWriter::finish() throws
  stop,           // throw from the next call
};
template <>
struct EnumNames<OnSaveError> {
  static constexpr EnumTable<OnSaveError, 2> values = {
      {{OnSaveError::keep_training, "continue"}, {OnSaveError::stop, "stop"}}};
};

}  // namespace quench
