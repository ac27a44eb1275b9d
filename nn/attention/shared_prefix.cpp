#include "nn/attention/shared_prefix.h"

#include <algorithm>

namespace quench::nn {

autograd::KeyRows expand_prefixes(std::vector<SequenceRange>& sequences, std::span<const SharedPrefix> prefixes,
                                  std::int64_t tokens, Device device) {
  std::vector<std::int32_t> rows;
  std::vector<std::vector<std::int32_t>> readers(static_cast<std::size_t>(tokens));
  const auto add = [&](std::int64_t begin, std::int64_t length) {
    for (std::int64_t row = begin; row < begin + length; ++row) {
      readers.at(static_cast<std::size_t>(row)).push_back(static_cast<std::int32_t>(rows.size()));
      rows.push_back(static_cast<std::int32_t>(row));
    }
  };
  auto prefix = prefixes.begin();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    SequenceRange& s = sequences[i];
    s.k_begin = std::ssize(rows);
    for (; prefix != prefixes.end() && prefix->sequence == i; ++prefix) {
      QUENCH_CHECK(prefix->begin >= 0 && prefix->length >= 0 && prefix->begin + prefix->length <= tokens,
                   "sequence {} shares rows {} to {} of {}", i, prefix->begin, prefix->begin + prefix->length, tokens);
      add(prefix->begin, prefix->length);
    }
    add(s.q_begin, s.q_length);
    s.k_length = std::ssize(rows) - s.k_begin;
  }
  QUENCH_CHECK(prefix == prefixes.end(), "shared prefixes are not in the order of {} sequences", sequences.size());
  std::size_t most = 1;
  for (const auto& of_row : readers) most = std::max(most, of_row.size());
  std::vector<std::int32_t> table(readers.size() * most, -1);
  for (std::size_t row = 0; row < readers.size(); ++row)
    std::ranges::copy(readers[row], table.begin() + static_cast<std::ptrdiff_t>(row * most));
  const auto upload = [&](const Shape& shape, std::span<const std::int32_t> values) {
    return Tensor::from_values<std::int32_t>(shape, values).to(device);
  };
  return {.rows = upload({std::ssize(rows)}, rows),
          .readers = upload({tokens, static_cast<std::int64_t>(most)}, table)};
}

}  // namespace quench::nn
