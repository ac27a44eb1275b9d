#include "nn/modules/module.h"

#include <algorithm>

namespace quench::nn {

template <class P>
void Module::list_parameters(std::vector<P*>& all) const {
  for (const auto& p : parameters_) all.push_back(p.item);
  for (const auto& child : children_) child.item->list_parameters(all);
}

std::vector<Parameter*> Module::parameters() {
  std::vector<Parameter*> all;
  list_parameters(all);
  return all;
}

std::vector<const Parameter*> Module::parameters() const {
  std::vector<const Parameter*> all;
  list_parameters(all);
  return all;
}

void Module::visit(const std::function<void(const std::string&, Module&)>& visitor, const std::string& prefix) {
  visitor(prefix, *this);
  for (const auto& child : children_)
    child.item->visit(visitor, prefix.empty() ? child.name : prefix + "." + child.name);
}

void Module::require_new(const std::string& name) const {
  const auto has = [&](const auto& all) {
    return std::ranges::any_of(all, [&](const auto& item) { return item.name == name; });
  };
  QUENCH_CHECK(!has(parameters_) && !has(children_), "module '{}' has a parameter or module '{}' already; rename one",
               prefix_, name);
}

void Module::add_module(std::string name, Module& module) {
  require_new(name);
  children_.push_back({std::move(name), &module});
}

void Module::add_parameter(std::string name, Parameter& parameter) {
  require_new(name);
  const Named<Parameter>& added = parameters_.emplace_back(Named<Parameter>{std::move(name), &parameter});
  if (named_) assign_name(added);
}

void Module::remove_parameter(const Parameter& parameter) {
  std::erase_if(parameters_, [&](const Named<Parameter>& p) { return p.item == &parameter; });
}

void Module::assign_name(const Named<Parameter>& parameter) const {
  parameter.item->name = prefix_ + parameter.name;
  parameter.item->pieces = {{parameter.item->name, 0, parameter.item->global_shape[0]}};
}

void Module::assign_names(const std::string& prefix) {
  prefix_ = prefix;
  named_ = true;
  for (const auto& p : parameters_) assign_name(p);
  name_pieces(prefix);
  for (const auto& child : children_) child.item->assign_names(prefix + child.name + ".");
}

void Module::name_pieces(const std::string&) {}

}  // namespace quench::nn
