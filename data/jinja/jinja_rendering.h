#pragma once
// Variables, output and limits of a rendering.

#include <ctime>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "data/jinja/jinja_functions.h"
#include "data/jinja/jinja_template.h"

namespace quench::jinja {

// Variables of a block. A macro captures the scopes of its definition.
struct Scope {
  const Scope* outer = nullptr;
  std::vector<std::pair<std::string_view, Value>> variables{};
  mutable bool kept = false;  // to the end of the rendering, for a macro
  void set(std::string_view name, Value value);
};

// Variable "loop".
struct LoopState {
  List items;
  std::size_t index = 0;
  std::int64_t depth = 0;  // depth of recursion
  const Statement* statement = nullptr;
  const Scope* outer = nullptr;
  bool running = true;
  std::optional<List> changed{};  // last arguments of loop.changed()
};
[[nodiscard]] Value loop_attribute(const LoopState& loop, std::string_view name);

class Rendering {
 public:
  Rendering(const Map& variables, const Limits& limits, const std::optional<std::tm>& date)
      : meter_(limits.steps, limits.bytes), variables_(variables), date_(date) {}

  Rendered run(const Block& block);
  [[nodiscard]] int line() const noexcept { return line_; }

 private:
  enum class Flow : std::uint8_t { normal, leave, next };
  class Level;
  class InnerScope;

  // jinja_statements.cpp
  Flow run_block(const Block& block, Scope& scope);
  Flow run_statement(const Statement& statement, Scope& scope);
  Flow run_conditional(const Statement& statement, Scope& scope);
  Flow run_loop(const Statement& statement, Scope& scope);
  Flow run_items(const Statement& statement, List items, std::int64_t depth, const Scope& scope);
  Flow run_inner(const Statement& statement, Scope& scope);
  Flow run_generation(const Statement& statement, Scope& scope);
  Flow run_capture(const Statement& statement, Scope& scope);
  Flow run_with(const Statement& statement, Scope& scope);
  void run_call(const Statement& statement, Scope& scope);
  static void define(const Macro& macro, std::string_view name, Scope& scope);
  void bind(const Target& target, const Value& value, Scope& scope);
  void write(std::string_view text);

  // jinja_calls.cpp
  Value evaluate_call(const Expression& expression, const Scope& scope, const Value* caller = nullptr);
  Arguments arguments_of(const Expression& expression, std::string_view called, const Scope& scope);
  Value call(const Value& function, std::string_view name, const Arguments& arguments);
  Value call_macro(const Macro& macro, const Scope& defined, const Arguments& arguments);
  Value call_loop(const LoopState& loop, const Arguments& arguments);
  Value call_loop_method(LoopState& loop, std::string_view name, const Arguments& arguments);
  Value call_builtin(std::string_view name, const Arguments& arguments);
  Value call_stateful(Namespace& state, std::string_view method, const Arguments& arguments);
  [[nodiscard]] Map members_of(std::string_view name, const Arguments& arguments);

  // jinja_evaluation.cpp
  Value evaluate(const Expression& expression, const Scope& scope);
  Value look_up(const std::string& name, const Scope& scope) const;
  Value evaluate_map(const Expression& expression, const Scope& scope);
  Value evaluate_slice(const Expression& expression, const Scope& scope);
  Value evaluate_unary(const Expression& expression, const Scope& scope);
  Value evaluate_binary(const Expression& expression, const Scope& scope);
  Value evaluate_comparison(const Expression& expression, const Scope& scope);

  Meter meter_;
  const Map& variables_;
  const std::optional<std::tm>& date_;
  Scope top_{};
  std::deque<Namespace> namespaces_{};
  std::vector<std::unique_ptr<Scope>> kept_{};
  Rendered out_{};
  std::string* target_ = &out_.text;  // the text, or a block or macro capture
  int message_ = -1;                  // message of the running loop body
  int line_ = 0;
  int depth_ = 0;
};

// Bounds the stack.
class Rendering::Level {
 public:
  explicit Level(Rendering& rendering);
  ~Level() { --rendering_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Rendering& rendering_;
};

// For its lifetime.
template <class T>
class Exchanged {
 public:
  Exchanged(T& place, T value) : place_(place), before_(std::exchange(place, value)) {}
  ~Exchanged() { place_ = before_; }
  Exchanged(const Exchanged&) = delete;
  Exchanged& operator=(const Exchanged&) = delete;

 private:
  T& place_;
  T before_;
};

// Kept alive if a macro captures it.
class Rendering::InnerScope {
 public:
  InnerScope(Rendering& rendering, const Scope& outer)
      : rendering_(rendering), scope_(std::make_unique<Scope>(Scope{&outer})) {}
  ~InnerScope() {
    if (scope_->kept) rendering_.kept_.push_back(std::move(scope_));
  }
  InnerScope(const InnerScope&) = delete;
  InnerScope& operator=(const InnerScope&) = delete;
  Scope& operator*() { return *scope_; }
  Scope* operator->() { return scope_.get(); }

 private:
  Rendering& rendering_;
  std::unique_ptr<Scope> scope_;
};

}  // namespace quench::jinja
