#pragma once
// The module tree: who owns which parameters, under which names.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/parameter.h"

namespace quench::nn {

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;  // children are registered by address
  Module& operator=(const Module&) = delete;

  // All parameters of the tree in registration order, names complete. Valid as long as the tree.
  [[nodiscard]] std::vector<Parameter*> parameters();
  [[nodiscard]] std::vector<const Parameter*> parameters() const;
  // Calls visit(full name, module) for this module ("" or the given prefix) and all below, parents first.
  void visit(const std::function<void(const std::string&, Module&)>& visitor, const std::string& prefix = "");
  // Writes full names, and Hugging Face names where a module has not set its own, into all parameters.
  // Call once on the root when the tree is complete. Parameters that are added later are named at once.
  void assign_names(const std::string& prefix = "");

 protected:
  void add_parameter(std::string name, Parameter& parameter);
  // Whether assign_names() has run, and the module's full path then, "" or ending in ".".
  [[nodiscard]] bool named() const noexcept { return named_; }
  [[nodiscard]] const std::string& path_prefix() const noexcept { return prefix_; }
  // For a parameter that leaves the tree again.
  void remove_parameter(const Parameter& parameter);
  void add_module(std::string name, Module& module) { children_.push_back({std::move(name), &module}); }

  // The Hugging Face pieces of this module's own parameters, when they differ from one piece of the same name.
  // `prefix` is the module's full path, "" or ending in ".".
  virtual void name_pieces(const std::string& prefix);

 private:
  template <class T>
  struct Named {
    std::string name;
    T* item;
  };
  template <class P>
  void list_parameters(std::vector<P*>& all) const;
  // Names the parameter within the module's path.
  void assign_name(const Named<Parameter>& parameter) const;

  std::string prefix_;  // the module's full path, "" or ending in "."
  bool named_ = false;  // assign_names() has run
  std::vector<Named<Parameter>> parameters_;
  std::vector<Named<Module>> children_;
};

}  // namespace quench::nn
