#include "data/jinja/jinja_template.h"

#include <algorithm>

#include "core/system/check.h"
#include "data/jinja/jinja_lexer.h"
#include "data/jinja/jinja_parser.h"
#include "data/jinja/jinja_rendering.h"

namespace quench::jinja {
namespace {

bool holds_generation(const Block& block) {
  return std::ranges::any_of(block, [](const Statement& statement) {
    return statement.kind == StatementKind::generation || std::ranges::any_of(statement.blocks, holds_generation);
  });
}

}  // namespace

Template::Template(std::string_view source, std::string name, const Limits& limits)
    : name_(std::move(name)), limits_(limits) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, source.size() <= limits.source_bytes,
                  "{}: a template of {} bytes; at most {} are read", name_, source.size(), limits.source_bytes);
  block_ = parse(source, name_);
  marks_generation_ = holds_generation(block_);
}

Rendered Template::render(const Map& variables) const {
  Rendering rendering(variables, limits_, date_);
  try {
    return rendering.run(block_);
  } catch (const Error& error) {
    throw Error(error.code(), located(name_, rendering.line(), error.what()), error.where());
  }
}

}  // namespace quench::jinja
