#include "nn/modules/rms_norm.h"

namespace quench::nn {

void RmsNorm::set_copy(Parameter* copy) {
  if (copy_ != nullptr) remove_parameter(*copy_);
  copy_ = copy;
  read_ = copy != nullptr ? copy : &weight_;
  if (copy == nullptr) return;
  add_parameter("modules_to_save.weight", *copy);
  if (named()) copy->pieces = weight_.pieces;
}

}  // namespace quench::nn
