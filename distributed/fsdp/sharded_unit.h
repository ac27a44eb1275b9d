#pragma once
// One unit of a sharded model: parameters that are gathered, freed and reduced together.
//
// A large parameter travels by itself, straight into and out of the memory that computation uses. Small ones lie behind
// one another in one buffer on each process, and travel as one.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/fsdp/buffer_pool.h"
#include "distributed/fsdp/wait_clock.h"
#include "distributed/process_group.h"
#include "nn/parameter.h"

namespace quench::distributed {

// Work of one kind that several tensors of a unit wait for.
using Works = std::vector<Work>;

class ShardedUnit {
 public:
  // What the units of a model share.
  struct Shared {
    std::shared_ptr<ProcessGroup> shard;         // of all parameters but those of experts that are shared out
    std::shared_ptr<ProcessGroup> expert_shard;  // of those
    Device device;
    DType reduce_dtype;  // of gradients on their way
    BufferPool weights;
    BufferPool gradients;
    Stream stream;  // where collectives are queued
    Event reached;  // on the current stream: what they follow
    std::shared_ptr<WaitClock> clock;
  };

  // Gives every parameter its handle to the whole values (nn::Parameter::whole). `takes_turns`: there are more units of
  // the same sizes, which share buffers; else memory comes from the allocator each time.
  ShardedUnit(std::string name, std::vector<nn::Parameter*> parameters, bool takes_turns,
              std::shared_ptr<Shared> shared);
  ~ShardedUnit();
  ShardedUnit(const ShardedUnit&) = delete;
  ShardedUnit& operator=(const ShardedUnit&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool trainable() const noexcept { return trainable_; }
  // Uses of values at this moment.
  [[nodiscard]] int users() const noexcept { return users_; }
  // Whether values stay after the last use.
  void set_frees_itself(bool frees) noexcept { frees_itself_ = frees; }

  // Begins to gather, unless the values of the parameters' present versions are there or on their way.
  void gather();
  // Gives the memory of gathered values back.
  void free();

  // Memory for the gradients of the whole parameters, before the first function that writes into one.
  void attach_gradients();
  // Whether all gradients of this pass are complete; counts the parameters' own notices.
  [[nodiscard]] bool gradients_ready() const noexcept { return ready_ == trainable_count_; }
  void expect_gradients() noexcept { ready_ = 0; }
  // Begins to sum the gradients of the whole parameters over the group; each process gets its rows. Where no function
  // wrote a gradient, it counts as zeros.
  void begin_reduce();
  // Adds the rows that arrived to the gradients of the shards, and gives the memory of the whole ones back.
  void end_reduce();

 private:
  class Source;
  struct Entry {
    nn::Parameter* parameter;
    std::shared_ptr<ProcessGroup> group;           // that holds it together
    Shape shape;                                   // of the whole: of what the group holds
    Shape padded_shape;                            // the same in rows of equal chunks
    Tensor values;                                 // of that shape, while gathered
    std::shared_ptr<autograd::Gradient> gradient;  // of the whole; null where frozen
    Tensor gradient_values;                        // of that shape, while it is wanted
    Tensor reduced;                                // this process's chunk of it, while it arrives
    std::uint64_t version = 0;                     // of the values
    std::int64_t place = -1;                       // of its chunk among the small ones, in elements; -1: travels alone
    [[nodiscard]] bool small() const noexcept { return place >= 0; }
  };

  [[nodiscard]] Tensor acquire(BufferPool& pool, const Shape& shape, DType dtype) const;
  void give_back(BufferPool& pool, Tensor& buffer) const;
  void pack_small();
  // A chunk of every process, [processes, elements], within what all processes sent together.
  [[nodiscard]] Tensor small_chunks(const Tensor& sent, const Entry& entry) const;
  void end_gather();
  // Of the small trainable parameters; returns where this process's sums will be, undefined where there are none.
  Tensor pack_gradients();
  Tensor request(std::size_t entry);
  void done() noexcept;
  [[nodiscard]] bool current() const;
  // Runs `work`, which queues collectives, for the groups that hold parameters: one after the other.
  void for_each_group(const std::function<void(ProcessGroup&)>& work) const;
  // Collectives queued from now on follow what is queued on the current stream.
  void follow() const;

  std::string name_;
  bool takes_turns_;
  std::shared_ptr<Shared> shared_;
  std::vector<Entry> entries_;
  Works gathering_, reducing_;
  Tensor small_;                             // chunks of the small parameters
  Tensor small_gathered_, small_gradients_;  // those of all processes, while they travel
  bool gathered_ = false;                    // or on its way
  bool frees_itself_ = false;
  bool trainable_ = false;
  int users_ = 0;
  int ready_ = 0;
  int trainable_count_ = 0;
};

}  // namespace quench::distributed
