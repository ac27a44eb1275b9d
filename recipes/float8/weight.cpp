#include "recipes/float8/weight.h"

namespace quench::recipes {

Float8Sink known_maxima(const nn::Parameter& parameter) {
  Float8Sink known;
  if (parameter.amax.defined() && parameter.amax_version == parameter.version && parameter.version > 0)
    known.amax = parameter.amax;
  return known;
}

void Float8Weight::refresh(const nn::Parameter& parameter, const Tensor& value, bool columns_wanted, bool rows_wanted) {
  const void* address = parameter.variable.value().raw_data();
  const bool current = valid_ && version_ == parameter.version && address_ == address;
  const bool columns_there = !columns_wanted || !uses_.along_columns || matrix_.along_columns().defined();
  const bool rows_there = !rows_wanted || !uses_.along_rows || matrix_.can_make_along_rows();
  if (current && columns_there && rows_there) return;
  Float8Uses uses = uses_;
  // What is kept will be wanted in both uses; else what is not wanted now would be dropped.
  if (!columns_wanted && !keep_) uses.along_columns.reset();
  if (!rows_wanted && !keep_) uses.along_rows.reset();
  matrix_ = Float8Matrix(value, uses, known_maxima(parameter), keep_);
  version_ = parameter.version;
  address_ = address;
  valid_ = true;
}

QuantTensor Float8Weight::along_columns(const nn::Parameter& parameter, const Tensor& value, bool rows_follow) {
  refresh(parameter, value, true, rows_follow);
  QuantTensor codes = matrix_.along_columns();
  if (!keep_) matrix_.drop_codes();
  return codes;
}

QuantTensor Float8Weight::along_rows(const nn::Parameter& parameter, const Tensor& value) {
  refresh(parameter, value, false, true);
  return matrix_.make_along_rows(value);
}

}  // namespace quench::recipes
