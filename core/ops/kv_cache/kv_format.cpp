#include "core/ops/kv_cache/kv_format.h"

#include "core/number/float8.h"
#include "core/number/int8_code.h"

namespace quench {

const ChoiceTable<KvFormat>& kv_formats() {
  static const ChoiceTable<KvFormat> table(
      "KV cache format",
      {{.name = "fp8", .summary = "float8 e4m3", .codes = DType::f8_e4m3, .largest = E4m3::kMax, .type = "float"},
       {.name = "int8",
        .summary = "8-bit integers",
        .codes = DType::i8,
        .largest = Int8Code::kMax,
        .type = "int",
        .transforms_keys = true}});
  return table;
}

const KvFormat* find_kv_format(DType codes) {
  for (const KvFormat& format : kv_formats())
    if (format.codes == codes) return &format;
  return nullptr;
}

}  // namespace quench
