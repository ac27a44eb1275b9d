#include "nn/module.h"

namespace quench::nn {

std::vector<Parameter*> Module::parameters() {
  std::vector<Parameter*> all;
  for (const auto& p : parameters_) all.push_back(p.item);
  for (const auto& child : children_)
    for (Parameter* p : child.item->parameters()) all.push_back(p);
  return all;
}

void Module::visit(const std::function<void(const std::string&, Module&)>& visitor, const std::string& prefix) {
  visitor(prefix, *this);
  for (const auto& child : children_)
    child.item->visit(visitor, prefix.empty() ? child.name : prefix + "." + child.name);
}

void Module::assign_names(const std::string& prefix) {
  for (const auto& p : parameters_) {
    p.item->name = prefix + p.name;
    p.item->pieces = {{p.item->name, 0, p.item->global_shape[0]}};
  }
  name_pieces(prefix);
  for (const auto& child : children_) child.item->assign_names(prefix + child.name + ".");
}

void Module::name_pieces(const std::string&) {}

}  // namespace quench::nn
