#pragma once
// Parsing and refusals of config.json.

#include <gtest/gtest.h>

#include <string>

#include "nn/spec/model_config.h"

namespace quench::testing {

inline nn::ModelConfig parsed(const Json& json) {
  return nn::parse_model_config(json, "config.json");
}

// The message of the error that it raises, after checking its code.
inline std::string fault_of(const Json& json, ErrorCode code = ErrorCode::bad_config) {
  try {
    (void)parsed(json);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << json.dump();
  return {};
}

}  // namespace quench::testing
