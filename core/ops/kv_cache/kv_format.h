#pragma once
// Table of the element formats of a KV cache, besides the model's dtype.

#include <string_view>

#include "core/number/dtype.h"
#include "core/system/choice_table.h"

namespace quench {

struct KvFormat {
  std::string_view name;
  std::string_view summary;
  DType codes;            // one byte
  float largest;          // code; a scale is amax / largest
  std::string_view type;  // in compressed-tensors' kv_cache_scheme
  // Under dynamic scales keys are stored after a Hadamard transform (hadamard.h), as queries then are.
  bool transforms_keys = false;
};

// Default first.
[[nodiscard]] const ChoiceTable<KvFormat>& kv_formats();
// Null: no code of a cache.
[[nodiscard]] const KvFormat* find_kv_format(DType codes);

}  // namespace quench
