#pragma once
// One unit of a sharded model: parameters that are gathered, freed and reduced together.

#include <memory>
#include <string>
#include <vector>

#include "distributed/fsdp/fsdp_unit_weights.h"

namespace quench::distributed {

class FsdpUnit {
 public:
  // Gives every parameter its handle to the whole values (nn::Parameter::whole). The weights of `layers` may travel as
  // codes. `double_buffered`: there are more units of the same sizes, which share buffers; else memory comes from the
  // allocator each time.
  FsdpUnit(const std::string& name, const std::vector<nn::Parameter*>& parameters,
           const std::vector<const nn::Linear*>& layers, bool double_buffered, std::shared_ptr<FsdpContext> shared);
  ~FsdpUnit();
  FsdpUnit(const FsdpUnit&) = delete;
  FsdpUnit& operator=(const FsdpUnit&) = delete;

  [[nodiscard]] FsdpUnitWeights& weights() noexcept { return weights_; }
  [[nodiscard]] bool trainable() const noexcept { return trainable_count_ > 0; }

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
  // Of the small trainable parameters of a buffer, while they travel; undefined where it has none.
  struct SmallGradients {
    Tensor all;      // of all processes
    Tensor reduced;  // this process's sums
  };
  struct Entry {
    std::shared_ptr<autograd::Gradient> gradient;  // of the whole; null where frozen
    Tensor gradient_values;                        // of the padded shape, while it is wanted
    Tensor reduced;                                // this process's chunk of it, while it arrives
  };

  [[nodiscard]] Tensor acquire(const Shape& shape) const;
  void give_back(Tensor& buffer) const;
  // Brings the gradients of small parameters together.
  void pack_gradients();

  std::string name_;
  bool double_buffered_;
  std::shared_ptr<FsdpContext> shared_;
  FlatLayout layout_;
  FsdpUnitWeights weights_;
  std::vector<Entry> entries_;  // of the layout's parameters
  Works reducing_;
  std::vector<SmallGradients> small_;  // as the layout's buffers
  int ready_ = 0;
  int trainable_count_ = 0;
};

}  // namespace quench::distributed
