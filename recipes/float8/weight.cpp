#include "recipes/float8/weight.h"

namespace quench::recipes {

Float8Sink known_maxima(const nn::Parameter& parameter) {
  Float8Sink known;
  if (parameter.amax.defined() && parameter.amax_version == parameter.version && parameter.version > 0)
    known.amax = parameter.amax;
  return known;
}

void Float8Weight::refresh(const nn::Parameter& parameter, const Tensor& value, bool columns_wanted) {
  const void* address = parameter.variable.value().raw_data();
  const bool current = valid_ && version_ == parameter.version && address_ == address;
  if (current && (!columns_wanted || !uses_.along_columns || matrix_.along_columns().defined())) return;
  matrix_ = Float8Matrix(value, uses_, known_maxima(parameter), keep_);
  version_ = parameter.version;
  address_ = address;
  valid_ = true;
}

QuantTensor Float8Weight::along_columns(const nn::Parameter& parameter, const Tensor& value) {
  refresh(parameter, value, true);
  QuantTensor codes = matrix_.along_columns();
  if (!keep_) matrix_.drop_codes();
  return codes;
}

QuantTensor Float8Weight::along_rows(const nn::Parameter& parameter, const Tensor& value) {
  refresh(parameter, value, false);
  return matrix_.make_along_rows(value);
}

}  // namespace quench::recipes
