#pragma once
// Documents longer than a row.

#include <cstdint>

#include "core/system/enum_names.h"

namespace quench {

enum class LongDocuments : std::uint8_t {
  split,     // into further rows: every token but the first is a target once
  truncate,  // to seq_len + 1 tokens; dropped if no target remains
  drop,      // above seq_len + 1 tokens
};
template <>
struct EnumNames<LongDocuments> {
  static constexpr EnumTable<LongDocuments, 3> values = {
      {{LongDocuments::split, "split"}, {LongDocuments::truncate, "truncate"}, {LongDocuments::drop, "drop"}}};
};

}  // namespace quench
