#pragma once
// A frozen model whose linear layers keep their weights in few bits (QLoRA, Dettmers et al., 2023).

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor/packed_matrix.h"
#include "nn/module.h"
#include "recipes/lora/base_form.h"

namespace quench::recipes {

// The stored weights of a model. Each becomes values where a product asks for them (autograd::WeightStorage), in the
// dtype that it had. What a form consists of (codes, scales) are frozen parameters with a row for each row of the
// weight, so that several processes share it out like any other: in place of the weight, whose own storage is given up
// (distributed/fsdp/). Outlives whoever shares the model out.
class QuantizedBase {
 public:
  // Brings a parameter of which this process holds a part, the same on all processes. Absent: it holds all.
  using Gather = std::function<Tensor(const nn::Parameter&)>;

  // Keeps the weights of the decoder's linear layers in this form from now on, but for those that keep() has taken.
  // Their parameters must be frozen. Nothing for BaseForm::dense and BaseForm::stored. Throws unsupported naming a
  // weight that the form cannot hold, nonfinite for one that is not finite.
  void store(nn::Module& root, BaseForm form, const Gather& gather = {});
  // The parameter's values are those of these codes, of all rows; `dtype` is that of the values.
  void keep(nn::Parameter& weight, const PackedMatrix& codes, DType dtype);

  [[nodiscard]] bool holds(const nn::Parameter& weight) const { return matrices_.contains(&weight); }
  // "nf4", "float8", or the codes of a quantized folder as "i4 g32"; empty for a weight that is not stored.
  [[nodiscard]] std::string form_of(const nn::Parameter& weight) const;
  // What stands for a weight, this process's rows; empty for one that is not stored.
  [[nodiscard]] std::vector<nn::Parameter*> parts(const nn::Parameter& weight) const;
  // The values of all rows.
  [[nodiscard]] Tensor values(const nn::Parameter& weight, const Gather& gather) const;

 private:
  struct Matrix;
  class Values;
  void put(nn::Parameter& weight, DType dtype, std::shared_ptr<Matrix> matrix);

  std::map<const nn::Parameter*, std::shared_ptr<Matrix>> matrices_;
};

// QuantizedBase::store() for a model that one process holds.
void store_base(nn::Module& root, BaseForm form);

// The weights that are stored are dense values again, rounded as their form has them. One process holds them.
void make_dense(nn::Module& root);

}  // namespace quench::recipes
