#pragma once
// What becomes of documents that are longer than a row.

#include <cstdint>

#include "core/system/enum_names.h"

namespace quench {

enum class LongDocuments : std::uint8_t {
  split,     // further rows continue the document: every token but its first is a target once
  truncate,  // the first seq_len + 1 tokens are used; a document that has no target there is left out
  drop,      // documents of more than seq_len + 1 tokens are left out
};
template <>
struct EnumNames<LongDocuments> {
  static constexpr EnumTable<LongDocuments, 3> values = {
      {{LongDocuments::split, "split"}, {LongDocuments::truncate, "truncate"}, {LongDocuments::drop, "drop"}}};
};

}  // namespace quench
