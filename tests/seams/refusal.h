#pragma once
// The message of the error that an action ends with; empty, and a failure, where it ends without.

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/system/check.h"

namespace quench::testing {

inline std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

}  // namespace quench::testing
