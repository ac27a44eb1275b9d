#pragma once
// Jinja as rendered by Transformers: the subset in published chat templates, with its settings (trim_blocks,
// lstrip_blocks, tojson, raise_exception, strftime_now, {% generation %}); other features are rejected by name.
// Templates are untrusted: size, nesting, steps and output are limited, only variables are accessible.

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/jinja/jinja_tree.h"
#include "data/jinja/jinja_value.h"

namespace quench::jinja {

struct Limits {
  std::size_t source_bytes = std::size_t{1} << 20;
  std::uint64_t steps = 5'000'000;                 // operations, items, bytes / 16
  std::uint64_t bytes = std::uint64_t{256} << 20;  // all intermediate texts
};

// [begin, end) of the text.
struct Range {
  std::size_t begin = 0, end = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

struct Rendered {
  std::string text;
  // Loops over messages (Map::message), in order.
  struct MessageRange {
    int message = 0;
    Range range;
  };
  std::vector<MessageRange> messages;
  // {% generation %} to {% endgeneration %}.
  std::vector<Range> generations;
};

class Template {
 public:
  // `name`: for errors, e.g. a path. Throws Error(unsupported) "<name>:<line>: <what>".
  Template(std::string_view source, std::string name, const Limits& limits = {});

  // Throws Error "<name>:<line>: <what>": unsupported for missing features; invalid_argument for raise_exception,
  // undefined values, wrong types, limits.
  [[nodiscard]] Rendered render(const Map& variables) const;

  // For strftime_now; unset: undefined function.
  void set_date(const std::tm& date) { date_ = date; }

  [[nodiscard]] bool marks_generation() const noexcept { return marks_generation_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
  Limits limits_;
  std::optional<std::tm> date_;
  bool marks_generation_ = false;
  Block block_;
};

}  // namespace quench::jinja
