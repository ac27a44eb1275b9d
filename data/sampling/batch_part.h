#pragma once
// Parts of a batch whose sequences several ranks compute together (context parallelism).
//
// Zig-zag: every row of T tokens is cut into 2 * count equal chunks; part i has chunks i and 2 * count - 1 - i. Under a
// causal mask all parts have the same number of pairs of query and key (Llama 3, arXiv:2407.21783, section 3.3.2).

#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor/tensor.h"

namespace quench {

struct Batch;

struct SequencePart {
  std::int64_t index = 0;
  std::int64_t count = 1;

  [[nodiscard]] bool is_whole() const noexcept { return count == 1; }
};

// Rows must have a multiple of this many tokens.
[[nodiscard]] constexpr std::int64_t part_chunks(std::int64_t count) noexcept {
  return count == 1 ? 1 : 2 * count;
}

// Batch::part of a batch that is a part.
struct BatchPart {
  SequencePart part;
  std::shared_ptr<const Batch> whole;
  std::vector<std::int32_t> tokens;    // by row: its token in `whole`
  std::vector<std::size_t> sequences;  // by element of Batch::sequences: its sequence in `whole`
  // Keys of the part's sequences, which SequenceRange::k_begin counts, as rows of all parts in the order of their
  // indices: i32 [M], M > 0, -1: none, and, by such a row, the elements of `keys` that are it, i32 [count * N,k], -1:
  // none. On the CPU.
  Tensor keys, readers;
};

// The part [B,T / count] of `whole` [B,T] on its device; the tensors of a meta device stay without values.
// `pinned_for`: GPU whose copies the tensors serve. A whole part is `whole` itself. Throws invalid_argument if
// part_chunks() does not divide T.
[[nodiscard]] Batch part_of(Batch whole, const SequencePart& part, Device pinned_for = {});

}  // namespace quench
