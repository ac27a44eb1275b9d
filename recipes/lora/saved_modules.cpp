#include "recipes/lora/saved_modules.h"

#include <algorithm>
#include <utility>

#include "core/system/key_error.h"
#include "nn/decoder/causal_lm.h"
#include "recipes/convert.h"

namespace quench::recipes {
namespace {

constexpr std::string_view kCopyName = "modules_to_save.weight";

// Lookup in a copy of the table.
class SavedTable final : public nn::EmbeddingKernel {
 public:
  SavedTable(std::shared_ptr<const nn::EmbeddingKernel> base, std::shared_ptr<nn::Parameter> copy)
      : base_(std::move(base)), copy_(std::move(copy)), name_(fmt::format("{}, trained copy", base_->name())) {}
  [[nodiscard]] nn::Variable apply(const nn::Parameter& /*table*/, const Tensor& ids) const override {
    return base_->apply(*copy_, ids);
  }
  [[nodiscard]] std::vector<nn::KernelParameter> parameters() const override {
    std::vector<nn::KernelParameter> all = base_->parameters();
    all.push_back({std::string(kCopyName), copy_.get()});
    return all;
  }
  [[nodiscard]] const nn::Parameter& read_weight(const nn::Parameter& /*table*/) const override { return *copy_; }
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms(const nn::Parameter& /*table*/) const override {
    return base_->head_gemms(*copy_);
  }
  [[nodiscard]] std::string_view name() const override { return name_; }

 private:
  std::shared_ptr<const nn::EmbeddingKernel> base_;
  std::shared_ptr<nn::Parameter> copy_;
  std::string name_;
};

// GEMMs with a copy of the head's weight.
class SavedHead final : public nn::LinearKernelWrapper {
 public:
  SavedHead(std::shared_ptr<const nn::LinearKernel> base, std::shared_ptr<nn::Parameter> copy)
      : LinearKernelWrapper(std::move(base)),
        copy_(std::move(copy)),
        name_(fmt::format("{}, trained copy", wrapped().name())) {}
  [[nodiscard]] std::vector<nn::KernelParameter> parameters() const override {
    std::vector<nn::KernelParameter> all = wrapped().parameters();
    const nn::ParameterPiece piece{fmt::format("{}.weight", nn::kHeadName), 0, copy_->global_shape[0]};
    all.push_back({std::string(kCopyName), copy_.get(), {piece}});
    return all;
  }
  [[nodiscard]] std::shared_ptr<const nn::LinearKernel> with_adapter(
      const std::shared_ptr<nn::LowRankAdapter>& /*adapter*/) const override {
    return nullptr;
  }
  [[nodiscard]] const nn::Parameter& read_weight(const nn::Parameter& /*weight*/) const override { return *copy_; }
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms(const nn::Parameter& /*weight*/) const override {
    return wrapped().head_gemms(*copy_);
  }
  [[nodiscard]] std::string_view name() const override { return name_; }

 private:
  [[nodiscard]] nn::LinearOutput do_run(const nn::LinearCall& call, const nn::Parameter& /*weight*/,
                                        const nn::Weight& bias) const override {
    return wrapped().run(call, *copy_, bias);
  }

  std::shared_ptr<nn::Parameter> copy_;
  std::string name_;
};

// Calls visit(name, table, head, norm), one of which is not null.
template <class Visitor>
void visit_savable(nn::Module& root, const Visitor& visitor) {
  root.visit([&](const std::string& name, nn::Module& module) {
    if (is_in_mtp_layer(root, name)) return;
    auto* head = name == nn::kHeadName ? dynamic_cast<nn::Linear*>(&module) : nullptr;
    auto* table = dynamic_cast<nn::Embedding*>(&module);
    auto* norm = dynamic_cast<nn::RmsNorm*>(&module);
    if (head != nullptr || table != nullptr || norm != nullptr) visitor(name, table, head, norm);
  });
}

// "embed_tokens, input_layernorm, lm_head": distinct last components.
std::string last_names(const std::vector<std::string>& names) {
  std::vector<std::string> last;
  for (const std::string& name : names)
    if (std::string component = name.substr(name.rfind('.') + 1); std::ranges::find(last, component) == last.end())
      last.push_back(std::move(component));
  return fmt::format("{}", fmt::join(last, ", "));
}

}  // namespace

bool is_in_mtp_layer(const nn::Module& root, std::string_view module) {
  const auto* model = dynamic_cast<const nn::CausalLm*>(&root);
  if (model == nullptr) return false;
  for (std::int64_t depth = 0; depth < model->config().mtp.layers; ++depth)
    if (module.starts_with(fmt::format("model.layers.{}.", model->config().num_hidden_layers + depth))) return true;
  return false;
}

bool saved_pattern_matches(std::string_view pattern, std::string_view module) {
  return module.ends_with(pattern) || glob_matches(pattern, module);
}

std::vector<std::string> savable_modules(nn::Module& root) {
  std::vector<std::string> names;
  visit_savable(root, [&](const std::string& name, auto*, auto*, auto*) { names.push_back(name); });
  return names;
}

Shape savable_shape(nn::Module& root, std::string_view module) {
  Shape shape;
  visit_savable(root, [&](const std::string& name, nn::Embedding* table, nn::Linear* head, nn::RmsNorm* norm) {
    if (name != module) return;
    shape = (table != nullptr ? table->weight() : head != nullptr ? head->weight() : norm->own_weight()).global_shape;
  });
  return shape;
}

nn::Parameter& SavedModules::Entry::original() const {
  if (table != nullptr) return table->weight();
  return head != nullptr ? head->weight() : norm->own_weight();
}

SavedModules::SavedModules(nn::Module& root, const std::vector<std::string>& patterns,
                           const nn::ParameterOptions& parameters) {
  if (patterns.empty()) return;
  const std::vector<std::string> names = savable_modules(root);
  const bool tied = std::ranges::find(names, nn::kHeadName) == names.end();
  const auto chooses = [&](const std::string& pattern, const std::string& name, bool is_table) {
    return saved_pattern_matches(pattern, name) || (tied && is_table && saved_pattern_matches(pattern, nn::kHeadName));
  };
  std::vector<bool> used(patterns.size());
  const MemoryScope scope(MemoryCategory::parameters);
  visit_savable(root, [&](const std::string& name, nn::Embedding* table, nn::Linear* head, nn::RmsNorm* norm) {
    bool chosen = false;
    for (std::size_t i = 0; i < patterns.size(); ++i)
      if (chooses(patterns[i], name, table != nullptr)) chosen = used[i] = true;
    if (!chosen) return;
    Entry& entry = entries_.emplace_back(Entry{name, table, head, norm, nullptr, nullptr, nullptr});
    nn::ParameterOptions options = parameters;
    options.sharding = options.expert_sharding = {};
    options.deferred = false;
    entry.copy = std::make_shared<nn::Parameter>(
        nn::make_parameter(entry.original().global_shape, options, nn::Initializer::zeros));
    entry.copy->adapter = true;
    ties_head_ = ties_head_ || (tied && table != nullptr);
  });
  for (std::size_t i = 0; i < patterns.size(); ++i)
    QUENCH_CHECK_KEY(ErrorCode::bad_config, "lora.modules_to_save", used[i],
                     "'{}' matches none of the modules that can be trained whole: {}", patterns[i], last_names(names));
}

void SavedModules::attach() const {
  for (const Entry& entry : entries_) {
    if (entry.table != nullptr) {
      entry.table_base = entry.table->shared_kernel();
      entry.table->set_kernel(std::make_shared<SavedTable>(entry.table_base, entry.copy));
    } else if (entry.head != nullptr) {
      entry.head_base = entry.head->shared_kernel();
      entry.head->set_kernel(std::make_shared<SavedHead>(entry.head_base, entry.copy));
    } else {
      entry.norm->set_copy(entry.copy.get());
    }
  }
}

void SavedModules::detach() const {
  for (const Entry& entry : entries_) {
    if (entry.table_base) entry.table->set_kernel(std::exchange(entry.table_base, nullptr));
    if (entry.head_base) entry.head->set_kernel(std::exchange(entry.head_base, nullptr));
    if (entry.norm != nullptr) entry.norm->set_copy(nullptr);
  }
}

void SavedModules::merge() const {
  for (const Entry& entry : entries_) {
    Tensor target = entry.original().variable.value();
    target.copy_from(entry.copy->variable.value());
    entry.original().mark_changed();
  }
}

void SavedModules::merge_into(const nn::Parameter& weight, const Tensor& values, const nn::WholeRows& whole) const {
  for (const Entry& entry : entries_) {
    if (&entry.original() != &weight) continue;
    Tensor target = values;
    target.copy_from(nn::whole_weight(*entry.copy, whole).acquire().value());
  }
}

void SavedModules::begin(const nn::WholeRows& whole) const {
  for (const Entry& entry : entries_) {
    Tensor target = entry.copy->variable.value();
    target.copy_from(nn::whole_weight(entry.original(), whole).acquire().value());
    entry.copy->mark_changed();
  }
}

std::vector<SavedModules::Module> SavedModules::modules() const {
  std::vector<Module> all;
  for (const Entry& entry : entries_) all.push_back({entry.name, entry.copy.get()});
  return all;
}

std::int64_t SavedModules::head_elements() const {
  for (const Entry& entry : entries_)
    if (entry.head != nullptr || (entry.table != nullptr && ties_head_)) return entry.copy->numel();
  return 0;
}

}  // namespace quench::recipes
