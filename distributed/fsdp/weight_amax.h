#pragma once
// Global amax of sharded weights: one all-reduce per step for all parameters.

#include <map>
#include <memory>
#include <vector>

#include "autograd/weight.h"
#include "distributed/exposed_comm_timer.h"
#include "distributed/process_group.h"
#include "nn/modules/parameter.h"

namespace quench::distributed {

class WeightAmax {
 public:
  // `parameters` must outlive this object.
  WeightAmax(std::vector<nn::Parameter*> parameters, std::shared_ptr<ProcessGroup> group, Device device,
             std::shared_ptr<ExposedCommTimer> clock);

  // All-reduce (max) of local amax kept by the optimizer (Parameter::amax) or requested by scale(). Collective unless
  // all are current.
  void refresh();
  // f32 []: tensorwise encode scale of the full parameter. Collective if its version is new.
  [[nodiscard]] Tensor scale(const nn::Parameter& parameter, const autograd::WeightFormat& form);

 private:
  struct Entry {
    nn::Parameter* parameter;
    bool asked = false;    // scale() was called
    bool reduced = false;  // `version` is reduced
    std::uint64_t version = 0;
  };
  struct Scales {
    ElementFormat element;
    bool power_of_two;
    Tensor values;  // undefined: amax has changed
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
