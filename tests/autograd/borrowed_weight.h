#pragma once
// A weight whose values exist only while it is acquired.

#include <gtest/gtest.h>

#include <algorithm>

#include "autograd/weight.h"

namespace quench::testing {

// Gives a fresh copy of a CPU variable's value to the first user and spoils it after the last release: a
// function that keeps the bytes, or reads them late, computes with 0xFF bytes, which are NaN.
class BorrowedValues final : public autograd::WeightStorage {
 public:
  explicit BorrowedValues(Tensor value) : value_(std::move(value)) {}
  ~BorrowedValues() override { EXPECT_EQ(users_, 0) << "a use did not end"; }

  Tensor acquire() override {
    if (users_++ == 0) lent_ = value_.clone();
    ++requests_;
    return lent_;
  }
  void release() noexcept override {
    if (--users_ > 0) return;
    std::fill_n(static_cast<unsigned char*>(lent_.raw_data()), lent_.nbytes(), static_cast<unsigned char>(0xFF));
    EXPECT_TRUE(lent_.is_exclusive()) << "somebody keeps the bytes of a weight";
    lent_ = Tensor();
  }
  [[nodiscard]] int requests() const noexcept { return requests_; }

 private:
  Tensor value_, lent_;
  int users_ = 0, requests_ = 0;
};

// The variable's value through such a source, and its gradient.
inline autograd::Weight borrowed(const autograd::Variable& variable) {
  const Tensor& value = variable.value();
  return {value.shape(), value.dtype(), value.device(), std::make_shared<BorrowedValues>(value), variable.gradient()};
}

}  // namespace quench::testing
