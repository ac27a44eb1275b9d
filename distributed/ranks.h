#pragma once
// The processes of a run as one of them sees them: its place, and the groups it is in.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/world.h"

namespace quench::distributed {

struct Ranks {
  int rank = 0;
  int size = 1;
  // On the run's device: all ranks, those that share one copy of the model, those that hold the same part of it.
  std::shared_ptr<ProcessGroup> world, shard, replicate;
  // Of the ranks of a copy: those that share out its experts, each with a part of them, and those that hold the same
  // experts together. Without expert parallelism, this rank alone and `shard`.
  std::shared_ptr<ProcessGroup> experts, expert_shard;
  // On the CPU: for what the host agrees on between steps, and for the thread that saves.
  std::shared_ptr<ProcessGroup> host, saving;

  [[nodiscard]] bool is_first() const noexcept { return rank == 0; }
};

// Shards of one copy of the model are ranks that follow one another: on one machine as far as possible. Of these again
// `expert` ranks that follow one another share out the experts. `shard` times `replicate` is the size of the world,
// `expert` divides `shard`. Collective.
[[nodiscard]] Ranks make_ranks(const std::shared_ptr<World>& world, int shard, int replicate, int expert = 1);

// Every rank's text, in order of the ranks. Texts are small: they pass through one buffer.
[[nodiscard]] std::vector<std::string> exchange_texts(ProcessGroup& group, std::string_view mine,
                                                      std::string_view label);

// Sums, or takes maxima of, whole numbers over the ranks of a CPU group.
void all_reduce_numbers(ProcessGroup& group, std::span<std::int64_t> numbers, ReduceOp op, std::string_view label);

// How long this rank waits for the others in an operation.
enum class Patience {
  usual,  // they come at once
  files,  // for what they may be reading or writing, however long that takes
};
// Runs `work` on every rank of a CPU group. Where it throws on any, all ranks throw: their own error, or the first of
// the others' (RelayedError), with its code and the rank in front. So what all ranks do next, they do together.
void together(ProcessGroup& group, std::string_view label, const std::function<void()>& work,
              Patience patience = Patience::files);
// The same where rank 0 does it first, and the others after it has succeeded.
void first_rank_first(ProcessGroup& group, std::string_view label, const std::function<void()>& work);

}  // namespace quench::distributed
