#pragma once
// The three GEMMs of a linear layer.

#include "core/system/enum_names.h"

namespace quench {

namespace recipes {
// y = x W^T, dx = dy W, dW = dy^T x.
enum class LinearGemm { forward, dgrad, wgrad };
}  // namespace recipes

template <>
struct EnumNames<recipes::LinearGemm> {
  using E = recipes::LinearGemm;
  static constexpr EnumTable<E, 3> values = {{{E::forward, "forward"}, {E::dgrad, "dgrad"}, {E::wgrad, "wgrad"}}};
};

}  // namespace quench
