#pragma once
// Expectation of an error by its code and a part of its message.

#include <gmock/gmock.h>

#include <functional>
#include <string>

#include "core/system/check.h"

namespace quench::testing {

// `work` throws Error of this code with `reason` in its message.
inline void expect_error(ErrorCode code, const std::string& reason, const std::function<void()>& work) {
  try {
    work();
    ADD_FAILURE() << "accepted; expected: " << reason;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), ::testing::HasSubstr(reason));
  }
}

}  // namespace quench::testing
