#pragma once
// KV cache of many sequences in pages of fixed size, as a forward pass reads and extends it.

#include "nn/attention/kv_cache.h"

namespace quench::nn {

// Tokens of a page.
inline constexpr std::int64_t kPageTokens = 32;

// The pass appends the keys and values of its tokens to rows of `cache`, whose length() is not used.
struct PagedKeys {
  const KvCache* cache = nullptr;
  // i32 [B, P]: a decode pass, one token per row, whose sequences have these pages; ForwardContext::positions are the
  // tokens' places (PagedAttentionArgs), ForwardContext::sequences is empty. Else undefined.
  Tensor pages{};
  // In other passes: i32 [N], the cache row of each token; and i32 [R], the cache rows of all keys of the sequences, in
  // the order that SequenceRange::k_begin counts. Without `key_rows` every sequence begins in this pass,
  // and its keys are read as they are, before a quantized cache rounds them.
  Tensor token_rows{}, key_rows{};

  [[nodiscard]] bool decodes() const noexcept { return pages.defined(); }
};

}  // namespace quench::nn
