#pragma once
// Module: node of the tree of named parameters that makes up a model.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/modules/parameter.h"

namespace quench::nn {

// Tree of named parameters. Parameters and submodules are registered by address: members of the module.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;  // children are registered by address
  Module& operator=(const Module&) = delete;

  // All parameters in registration order. Valid for the tree's lifetime.
  [[nodiscard]] std::vector<Parameter*> parameters();
  [[nodiscard]] std::vector<const Parameter*> parameters() const;
  // Calls visit(full name, module), parents first.
  void visit(const std::function<void(const std::string&, Module&)>& visitor, const std::string& prefix = "");
  // Sets full names and default Hugging Face names. Call once on the root of the complete tree; parameters added later
  // are named immediately.
  void assign_names(const std::string& prefix = "");

 protected:
  // Throw invalid_argument for a name that the module has already.
  void add_parameter(std::string name, Parameter& parameter);
  // `path_prefix`: the module's full path, "" or ending in ".".
  [[nodiscard]] bool named() const noexcept { return named_; }
  [[nodiscard]] const std::string& path_prefix() const noexcept { return prefix_; }
  void remove_parameter(const Parameter& parameter);
  void add_module(std::string name, Module& module);

  // For parameters with other Hugging Face pieces than one of the same name.
  virtual void name_pieces(const std::string& prefix);

 private:
  template <class T>
  struct Named {
    std::string name;
    T* item;
  };
  template <class P>
  void list_parameters(std::vector<P*>& all) const;
  void require_new(const std::string& name) const;
  void assign_name(const Named<Parameter>& parameter) const;

  std::string prefix_;
  bool named_ = false;
  std::vector<Named<Parameter>> parameters_;
  std::vector<Named<Module>> children_;
};

}  // namespace quench::nn
