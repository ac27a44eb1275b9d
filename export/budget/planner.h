#pragma once
// Groups of layers that a budget's choice is for: their schemes, sizes and estimated costs, and the choice.

#include <string>
#include <string_view>
#include <vector>

#include "export/budget/bit_budget.h"
#include "export/budget/choice_search.h"
#include "export/imatrix/importance.h"

namespace quench {

class Sensitivity;

class Planner {
 public:
  // Arguments as of plan_schemes(); they must outlive the planner. Throws bad_config if no layer is chosen for.
  Planner(const std::vector<ModelTensor>& tensors, const nn::ModelConfig& config, const QuantizationRules& rules,
          const ExportFormat& format, const FolderReader* reader, const BitBudget& budget);

  // Costs: relative errors.
  void add_costs(const Importance& importance);
  // Costs: expected divergences; layers run one after the other on the data.
  void add_costs(nn::CausalLm& model, const CalibrationData& data);

  // Choice of least estimated cost. Throws bad_config naming `option` if none is within the budget.
  [[nodiscard]] OptionChoice choose(std::string_view option) const;
  // The best of the estimate's choices (of all schemes, and of the two next to the budget), of uniform schemes and of
  // mixes within the budget, and then of
  // BitBudget::search_steps trials, by the divergence measured on the first sequences of the data. Sets what the plan
  // says of it.
  [[nodiscard]] OptionChoice search(nn::CausalLm& model, const CalibrationData& data, SchemePlan& plan,
                                    const QuantizationProgress& progress) const;
  // Adds layers, sizes and estimated cost of a choice.
  void describe(const OptionChoice& choice, SchemePlan& plan) const;

 private:
  // Layers of one scheme, and what each candidate costs.
  struct Group {
    std::vector<const ModelTensor*> tensors;
    std::vector<std::vector<float>> importance;  // columns' factors by tensor; empty: none
    std::vector<const Scheme*> schemes;
  };

  [[nodiscard]] bool is_file() const { return !format_.weights_file.empty(); }
  [[nodiscard]] std::int64_t capacity() const;  // bits
  [[nodiscard]] std::string group_name(const ModelTensor& tensor) const;
  [[nodiscard]] bool suits(const Scheme* scheme, const ModelTensor& tensor) const;
  void add_schemes(Group& group);
  void add_costs(std::size_t group, std::size_t tensor, const Sensitivity* sensitivity, std::vector<float> importance,
                 const Tensor& gram);
  [[nodiscard]] bool fits(const OptionChoice& choice) const;
  // Options of the scheme for all groups; nullopt: a group lacks it.
  [[nodiscard]] std::optional<OptionChoice> uniform_choice(const Scheme* scheme) const;
  // Options of a mix; nullopt: a group lacks one, or the sum exceeds the capacity.
  [[nodiscard]] std::optional<OptionChoice> mix_choice(const Scheme& mix) const;
  // The estimate's choice between the uniform schemes next to the capacity, and their names; nullopt: on one side
  // alone.
  [[nodiscard]] std::optional<std::pair<OptionChoice, std::string>> neighbours_choice() const;

  const std::vector<ModelTensor>& tensors_;
  const nn::ModelConfig& config_;
  const QuantizationRules& rules_;
  const ExportFormat& format_;
  const FolderReader* reader_;
  const BitBudget& budget_;
  std::vector<Group> groups_;
  std::vector<std::vector<KnapsackOption>> options_;  // by group; sizes in bits
  std::int64_t weights_ = 0, fixed_bits_ = 0;
};

}  // namespace quench
