#pragma once
// Modules that are trained whole next to adapters: PEFT's modules_to_save.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nn/modules/embedding.h"
#include "nn/modules/linear.h"
#include "nn/modules/rms_norm.h"
#include "nn/modules/whole_rows.h"

namespace quench::recipes {

// Whether a pattern names the module: the end of its name, as in PEFT ("norm" also names input_layernorm), or a glob.
[[nodiscard]] bool saved_pattern_matches(std::string_view pattern, std::string_view module);

// True for modules of layers of multi-token prediction, which have no adapters and no copies.
[[nodiscard]] bool is_in_mtp_layer(const nn::Module& root, std::string_view module);

// Names of the embedding, an untied head and the norms, in module order; without those of MTP layers.
[[nodiscard]] std::vector<std::string> savable_modules(nn::Module& root);
// Shape of the weight of one of them.
[[nodiscard]] Shape savable_shape(nn::Module& root, std::string_view module);

// Trained copies of the weights of embedding, head and norms, which passes read in place of the frozen originals while
// attached. A tied head reads the copy of the embedding (ensure_weight_tying in PEFT).
class SavedModules {
 public:
  // `root` must outlive this. "lm_head" names the embedding if the head is tied to it, as in PEFT. Throws bad_config
  // for a pattern without match (lora.modules_to_save). Copies are undefined until begin(), whole, and have the
  // Hugging Face names of the originals.
  SavedModules(nn::Module& root, const std::vector<std::string>& patterns, const nn::ParameterOptions& parameters);

  // Wraps the current kernels; to be repeated after each change of kernels.
  void attach() const;
  void detach() const;
  // The originals become the copies. Detached, unsharded.
  void merge() const;
  // Overwrites `values`, all rows of a weight, if it has a copy.
  void merge_into(const nn::Parameter& weight, const Tensor& values, const nn::WholeRows& whole) const;
  // Copies the originals.
  void begin(const nn::WholeRows& whole) const;

  struct Module {
    std::string name;  // "model.embed_tokens"
    nn::Parameter* copy;
  };
  [[nodiscard]] std::vector<Module> modules() const;
  // Elements of a copy of the untied or tied head; 0: none.
  [[nodiscard]] std::int64_t head_elements() const;
  // The head is tied to a copied embedding.
  [[nodiscard]] bool ties_head() const noexcept { return ties_head_; }

 private:
  struct Entry {
    std::string name;
    nn::Embedding* table = nullptr;  // one of the three
    nn::Linear* head = nullptr;
    nn::RmsNorm* norm = nullptr;
    std::shared_ptr<nn::Parameter> copy;
    mutable std::shared_ptr<const nn::EmbeddingKernel> table_base;  // null: not attached
    mutable std::shared_ptr<const nn::LinearKernel> head_base;

    [[nodiscard]] nn::Parameter& original() const;
  };

  std::vector<Entry> entries_;
  bool ties_head_ = false;
};

}  // namespace quench::recipes
