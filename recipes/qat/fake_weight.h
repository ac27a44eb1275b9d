#pragma once
// Fake-quantized weight, kept until its inputs change.

#include <memory>

#include "nn/modules/low_rank_adapter.h"
#include "recipes/qat/fake_quantizer.h"

namespace quench::recipes {

// q(W), or q(W + update) under an adapter.
class FakeWeight {
 public:
  // `scales` [N, groups]: learned scales, or null.
  FakeWeight(const FakeFormat& format, bool keep, std::shared_ptr<nn::LowRankAdapter> adapter = nullptr,
             std::shared_ptr<nn::Parameter> scales = nullptr)
      : format_(format), keep_(keep), adapter_(std::move(adapter)), scales_(std::move(scales)) {}

  // Matrices stacked in `parameter`, each quantized separately.
  [[nodiscard]] FakeQuantized get(const nn::Parameter& parameter, bool with_mask, std::int64_t matrices = 1);

 private:
  // Valid because an optimizer step writes all inputs or none.
  [[nodiscard]] std::uint64_t version_of(const nn::Parameter& parameter) const;
  [[nodiscard]] FakeQuantized make(const nn::Parameter& parameter, bool with_mask, std::int64_t matrices) const;

  FakeFormat format_;
  bool keep_;
  std::shared_ptr<nn::LowRankAdapter> adapter_;
  std::shared_ptr<nn::Parameter> scales_;
  FakeQuantized kept_;
  std::uint64_t version_ = 0;
  const void* address_ = nullptr;
};

}  // namespace quench::recipes
