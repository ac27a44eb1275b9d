#pragma once
// One rendering of a template: its variables, its output and its limits.

#include <ctime>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "data/jinja/jinja_functions.h"
#include "data/jinja/jinja_template.h"

namespace quench::jinja {

class Rendering {
 public:
  Rendering(const Map& variables, const Limits& limits, const std::optional<std::tm>& date)
      : meter_(limits.steps, limits.bytes), variables_(variables), date_(date) {}

  Rendered run(const Block& block);
  // The line of the template at which it is.
  [[nodiscard]] int line() const noexcept { return line_; }

 private:
  enum class Flow : std::uint8_t { normal, leave, next };
  // Variables that a block has set. Macros are defined at the top only, so no scope outlives its block.
  struct Scope {
    const Scope* outer = nullptr;
    std::vector<std::pair<std::string_view, Value>> variables{};
    void set(std::string_view name, Value value);
  };
  class Level;

  // jinja_statements.cpp
  Flow run_block(const Block& block, Scope& scope);
  Flow run_statement(const Statement& statement, Scope& scope);
  Flow run_conditional(const Statement& statement, Scope& scope);
  Flow run_loop(const Statement& statement, Scope& scope);
  Flow run_generation(const Statement& statement, Scope& scope);
  void run_assignment(const Statement& statement, Scope& scope);
  void run_capture(const Statement& statement, Scope& scope);
  void bind(const std::vector<std::string>& names, const Value& value, Scope& scope);
  void write(std::string_view text);
  Value call_macro(const Macro& macro, const Arguments& arguments);

  // jinja_evaluation.cpp
  Value evaluate(const Expression& expression, const Scope& scope);
  Value look_up(const std::string& name, const Scope& scope) const;
  Value evaluate_map(const Expression& expression, const Scope& scope);
  Value evaluate_slice(const Expression& expression, const Scope& scope);
  Value evaluate_call(const Expression& expression, const Scope& scope);
  Value evaluate_unary(const Expression& expression, const Scope& scope);
  Value evaluate_binary(const Expression& expression, const Scope& scope);
  Value evaluate_comparison(const Expression& expression, const Scope& scope);
  Arguments arguments_of(const Expression& expression, std::string_view called, const Scope& scope);
  Value call_builtin(std::string_view name, const Arguments& arguments);

  Meter meter_;
  const Map& variables_;
  const std::optional<std::tm>& date_;
  Scope top_{};
  std::deque<Namespace> namespaces_{};
  Rendered out_{};
  std::string* target_ = &out_.text;  // where output goes: the text, or what a block or macro makes
  int message_ = -1;                  // whose loop body is running
  int line_ = 0;
  int depth_ = 0;
};

// The limit of nested evaluations, which bounds the stack.
class Rendering::Level {
 public:
  explicit Level(Rendering& rendering);
  ~Level() { --rendering_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Rendering& rendering_;
};

}  // namespace quench::jinja
