#pragma once
// Parsing and refusals of config.json.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nn/spec/model_config.h"

namespace quench::testing {

inline nn::ModelConfig parsed(const Json& json) {
  return nn::parse_model_config(json, "config.json");
}

// Layers with experts, one flag a layer.
inline std::vector<bool> sparse_layers(const nn::ModelConfig& config) {
  std::vector<bool> sparse;
  for (const nn::BlockSpec& block : config.blocks) sparse.push_back(block.feed_forward.experts.has_value());
  return sparse;
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
