#include "nn/spec/model_family.h"

#include <algorithm>

namespace quench::nn {

bool ModelFamily::has_member(std::string_view name) const {
  return std::ranges::find(executes, name) != executes.end() ||
         std::ranges::find(members, name, &ConfigMember::name) != members.end();
}

const ModelFamily* find_model_family(std::string_view name) {
  for (const ModelFamily& family : model_families())
    if (family.architecture == name || family.model_type == name) return &family;
  return nullptr;
}

}  // namespace quench::nn
