#pragma once
// Keys that several sequences of a batch have in common, e.g. of a prompt with two answers.

#include <span>
#include <vector>

#include "autograd/functions.h"

namespace quench::nn {

// Rows of keys for `sequences` of `tokens` rows, whose k_begin and k_length are set to them. `prefixes`: ascending by
// sequence, of rows of other sequences without prefix. Throws invalid_argument otherwise.
[[nodiscard]] autograd::KeyRows expand_prefixes(std::vector<SequenceRange>& sequences,
                                                std::span<const SharedPrefix> prefixes, std::int64_t tokens,
                                                Device device);

}  // namespace quench::nn
