#pragma once
// Global amax of sharded weights: one all-reduce a step for all parameters.

#include <map>
#include <memory>
#include <vector>

#include "autograd/weight.h"
#include "distributed/fsdp/exposed_comm_timer.h"
#include "distributed/process_group.h"
#include "nn/parameter.h"

namespace quench::distributed {

class WeightAmax {
 public:
  // Of these parameters, which outlive it.
  WeightAmax(std::vector<nn::Parameter*> parameters, std::shared_ptr<ProcessGroup> group, Device device,
             std::shared_ptr<ExposedCommTimer> clock);

  // The magnitudes that the optimizer has kept up of this process's rows (Parameter::amax), and those that scale() has
  // been asked for, become those of the whole parameters' present versions. Collective unless all are so already.
  void refresh();
  // f32 []: the encode scale of the whole parameter under a form with one scale for the tensor. Collective where its
  // version is a new one.
  [[nodiscard]] Tensor scale(const nn::Parameter& parameter, const autograd::WeightFormat& form);

 private:
  struct Entry {
    nn::Parameter* parameter;
    bool asked = false;    // for a scale
    bool reduced = false;  // a version was
    std::uint64_t version = 0;
  };
  // Scales of all places under one formula.
  struct Scales {
    ElementFormat element;
    bool power_of_two;
    Tensor values;  // undefined: maxima have changed
  };
  [[nodiscard]] Tensor place(std::size_t index) const;

  std::vector<Entry> entries_;
  std::map<const nn::Parameter*, std::size_t> index_;
  std::shared_ptr<ProcessGroup> group_;
  Device device_;
  std::shared_ptr<ExposedCommTimer> clock_;
  Tensor amax_;  // f32 [parameters]
  std::vector<Scales> scales_;
};

}  // namespace quench::distributed
