#include "apps/serve/api/served_models.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "apps/serve/api/api_error.h"
#include "core/system/utf8.h"

namespace quench::serve {

std::int64_t ServedModels::adapter_of(const std::string& name) const {
  if (name.empty() || name == base) return -1;
  const auto found = std::ranges::find(adapters, name);
  if (found != adapters.end()) return found - adapters.begin();
  throw ApiError(404, "model_not_found",
                 fmt::format("unknown model \"{}\"; served: {}{}{}", shorten_utf8(name, 200), base,
                             adapters.empty() ? "" : ", ", fmt::join(adapters, ", ")),
                 "model");
}

}  // namespace quench::serve
