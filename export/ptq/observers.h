#pragma once
// Observers of linear layers' inputs.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "export/methods/input_statistics.h"
#include "nn/experts/expert_linear.h"
#include "nn/modules/linear.h"

namespace quench {

// By weight: one entry, or one per expert.
class InputObservers {
 public:
  explicit InputObservers(bool with_gram) : with_gram_(with_gram) {}
  ~InputObservers();
  InputObservers(const InputObservers&) = delete;
  InputObservers& operator=(const InputObservers&) = delete;

  // Until stop() or destruction; GEMMs run unquantized.
  void observe(const std::string& name, nn::Linear& layer);
  void observe(const std::string& name, nn::ExpertLinear& layer);
  // Statistics are kept.
  void stop();
  [[nodiscard]] InputStatistics& of(const nn::Parameter& weight, std::int64_t expert = 0) const;

 private:
  using Statistics = std::shared_ptr<std::vector<InputStatistics>>;
  [[nodiscard]] Statistics make(const nn::Parameter& weight, std::int64_t experts);

  bool with_gram_;
  std::map<const nn::Parameter*, Statistics> statistics_;
  std::vector<nn::Linear*> layers_;
  std::vector<nn::ExpertLinear*> experts_;
};

}  // namespace quench
