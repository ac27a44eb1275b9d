#pragma once
// Weights for the tests of quantization and export.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/number/random.h"
#include "core/ops/packed_linear.h"
#include "export/formats/model_tensors.h"
#include "export/methods/rtn.h"
#include "export/schemes/quantized_weight.h"
#include "export/table/open_stored_weights.h"
#include "tests/testing.h"

namespace quench::testing {

inline Tensor normal_weight(const Shape& shape, DType dtype, std::uint64_t stream = 1) {
  const Tensor t = Tensor::empty(shape, dtype);
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    const float x = 0.05f * random_normal({7, stream, 0}, static_cast<std::uint64_t>(i));
    if (dtype == DType::bf16)
      t.data<bfloat16>()[i] = bfloat16(x);
    else
      t.data<float>()[i] = x;
  }
  return t;
}

inline Tensor unpacked(const PackedMatrix& packed, DType dtype = DType::f32) {
  const Tensor values = Tensor::empty(packed.codes().shape(), dtype);
  unpack({packed, values});
  return values;
}

// The weight of a layer, rounded where it has a scheme.
inline ModelTensor tensor(std::string layer, const Tensor& w, const Scheme* scheme) {
  ModelTensor t{
      .name = layer + ".weight", .layer = layer, .shape = w.shape(), .dtype = w.dtype(), .value = [w] { return w; }};
  if (scheme != nullptr) {
    t.scheme = scheme;
    t.quantized = std::make_shared<QuantizedWeight>(rtn(w, scheme->weights, t.name));
  }
  return t;
}

// A config.json that says nothing else.
inline Json config_of(const Json& quantization) {
  Json config = Json::object();
  config.set(kQuantizationConfig, quantization);
  return config;
}

inline bool equal_bytes(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && std::memcmp(a.raw_data(), b.raw_data(), a.nbytes()) == 0;
}

// An Error of this code, with this part in its message.
template <class Body>
void expect_failure(ErrorCode code, std::string_view part, Body&& body) {
  try {
    body();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_THAT(error.what(), ::testing::HasSubstr(std::string(part)));
  }
}

}  // namespace quench::testing
