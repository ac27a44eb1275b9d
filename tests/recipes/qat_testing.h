#pragma once
// Formats of QAT tests.

#include "recipes/qat/fake_quantizer.h"

namespace quench::testing {

inline recipes::FakeFormat integers(int bits, std::int64_t group, IntMapping mapping = IntMapping::symmetric) {
  return {.kind = recipes::FakeFormat::Kind::integer,
          .integers = {.bits = bits, .mapping = mapping, .group_size = group}};
}

}  // namespace quench::testing
