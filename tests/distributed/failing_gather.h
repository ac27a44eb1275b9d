#pragma once
// A rank that throws in the middle of what the others wait for.

#include "distributed/fsdp/gather_parameter.h"

namespace quench::testing {

// Rank `victim` cannot give its part of the second parameter, for a reason that only it knows. Throws on all ranks.
inline void fail_in_gather(const distributed::Ranks& ranks, int victim) {
  nn::ParameterOptions options;
  options.sharding = {ranks.rank, ranks.size};
  nn::Parameter first = nn::make_parameter({7, 6}, options), second = nn::make_parameter({7, 6}, options);
  first.name = "first";
  second.name = "second";
  if (ranks.rank == victim) second.padded = second.padded.transpose(0, 1);
  distributed::with_whole_parameters({&first, &second}, ranks, [&](const nn::WholeRows& whole) {
    QUENCH_CHECK_AS(ErrorCode::failed, whole(first).shape() == Shape({7, 6}), "the first one is not whole");
    (void)whole(second);
  });
}

}  // namespace quench::testing
