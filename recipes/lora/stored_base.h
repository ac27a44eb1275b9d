#pragma once
// A frozen model whose linear layers keep their weights in few bits (QLoRA, Dettmers et al., 2023).

#include "nn/module.h"
#include "recipes/lora/base_form.h"

namespace quench::recipes {

// The weights of the decoder's linear layers are kept in this form from now on, and become values where a product asks
// for them (autograd::WeightSource), in the dtype they have now. Their parameters must be frozen. Throws unsupported
// naming a weight that the form cannot hold, nonfinite for one that is not finite.
void store_base(nn::Module& root, BaseForm form);

// The weights that store_base() has put away are dense values again, rounded as their form has them.
void make_dense(nn::Module& root);

}  // namespace quench::recipes
