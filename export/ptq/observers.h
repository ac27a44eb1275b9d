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

struct ObservedPass {
  std::int64_t tokens = 0;
  std::vector<std::int64_t> first_rows;
};

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
  // Tokens of the passes that follow, and which are the first ones of sequences, for linear layers with as many inputs
  // (InputStatistics::add()).
  void begin_pass(std::int64_t tokens, std::vector<std::int64_t> first_rows) {
    *pass_ = {tokens, std::move(first_rows)};
  }
  // Statistics are kept.
  void stop();
  [[nodiscard]] InputStatistics& of(const nn::Parameter& weight, std::int64_t expert = 0) const;

 private:
  using Statistics = std::shared_ptr<std::vector<InputStatistics>>;
  [[nodiscard]] Statistics make(const nn::Parameter& weight, std::int64_t experts);

  bool with_gram_;
  std::shared_ptr<ObservedPass> pass_ = std::make_shared<ObservedPass>();
  std::map<const nn::Parameter*, Statistics> statistics_;
  std::vector<nn::Linear*> layers_;
  std::vector<nn::ExpertLinear*> experts_;
};

}  // namespace quench
