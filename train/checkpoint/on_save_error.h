#pragma once
// What becomes of a run whose checkpoint cannot be written.

#include "core/system/enum_names.h"

namespace quench {

enum class OnSaveError {
  keep_training,  // the error is logged, training goes on, and CheckpointWriter::finish() throws at the end
  stop,           // the error is thrown by the next call
};
template <>
struct EnumNames<OnSaveError> {
  static constexpr EnumTable<OnSaveError, 2> values = {
      {{OnSaveError::keep_training, "continue"}, {OnSaveError::stop, "stop"}}};
};

}  // namespace quench
