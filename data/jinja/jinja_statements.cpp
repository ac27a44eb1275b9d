#include <algorithm>

#include "core/system/check.h"
#include "data/jinja/jinja_rendering.h"

namespace quench::jinja {
namespace {

constexpr int kMaxDepth = 500;

// Puts a value into a variable for its lifetime.
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

Value loop_variables(const List& items, std::size_t i, std::int64_t depth) {
  const auto index = static_cast<std::int64_t>(i), length = static_cast<std::int64_t>(items.size());
  Map loop;
  loop.members = {{"index0", index},
                  {"index", index + 1},
                  {"revindex0", length - index - 1},
                  {"revindex", length - index},
                  {"first", i == 0},
                  {"last", i + 1 == items.size()},
                  {"length", length},
                  {"depth0", depth},
                  {"depth", depth + 1},
                  {"previtem", i > 0 ? items[i - 1] : Value(Undefined{"loop.previtem"})},
                  {"nextitem", i + 1 < items.size() ? items[i + 1] : Value(Undefined{"loop.nextitem"})}};
  return loop;
}

}  // namespace

Rendering::Level::Level(Rendering& rendering) : rendering_(rendering) {
  QUENCH_CHECK(++rendering.depth_ <= kMaxDepth || --rendering.depth_ < 0, "nested too deeply");
}

void Rendering::Scope::set(std::string_view name, Value value) {
  const auto known = std::ranges::find(variables, name, [](const auto& variable) { return variable.first; });
  if (known != variables.end())
    known->second = std::move(value);
  else
    variables.emplace_back(name, std::move(value));
}

Rendered Rendering::run(const Block& block) {
  run_block(block, top_);
  return std::move(out_);
}

void Rendering::write(std::string_view text) {
  if (text.empty()) return;
  meter_.bytes(text.size());
  const std::size_t begin = target_->size();
  *target_ += text;
  if (target_ != &out_.text || message_ < 0) return;
  auto& messages = out_.messages;
  if (!messages.empty() && messages.back().message == message_ && messages.back().range.end == begin)
    messages.back().range.end = target_->size();
  else
    messages.push_back({message_, {begin, target_->size()}});
}

Rendering::Flow Rendering::run_block(const Block& block, Scope& scope) {
  for (const Statement& statement : block)
    if (const Flow flow = run_statement(statement, scope); flow != Flow::normal) return flow;
  return Flow::normal;
}

Rendering::Flow Rendering::run_statement(const Statement& statement, Scope& scope) {
  const Level level(*this);
  line_ = statement.line;
  meter_.step();
  switch (statement.kind) {
    case StatementKind::text: write(statement.text); break;
    case StatementKind::output: write(text_of(evaluate(*statement.expressions[0], scope))); break;
    case StatementKind::conditional: return run_conditional(statement, scope);
    case StatementKind::loop: return run_loop(statement, scope);
    case StatementKind::assign: run_assignment(statement, scope); break;
    case StatementKind::capture: run_capture(statement, scope); break;
    case StatementKind::macro: scope.set(statement.macro->name, Value(statement.macro.get())); break;
    case StatementKind::generation: return run_generation(statement, scope);
    case StatementKind::leave: return Flow::leave;
    case StatementKind::next: return Flow::next;
  }
  return Flow::normal;
}

Rendering::Flow Rendering::run_conditional(const Statement& statement, Scope& scope) {
  for (std::size_t i = 0; i < statement.expressions.size(); ++i)
    if (evaluate(*statement.expressions[i], scope).truthy()) return run_block(statement.blocks[i], scope);
  if (statement.blocks.size() > statement.expressions.size()) return run_block(statement.blocks.back(), scope);
  return Flow::normal;
}

Rendering::Flow Rendering::run_loop(const Statement& statement, Scope& scope) {
  List items = items_of(evaluate(*statement.expressions[0], scope), meter_);
  if (statement.expressions[1]) {
    List kept;
    for (Value& item : items) {
      Scope inner{&scope};
      bind(statement.names, item, inner);
      if (evaluate(*statement.expressions[1], inner).truthy()) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    Scope inner{&scope};
    return run_block(statement.blocks[1], inner);
  }
  std::int64_t depth = 0;
  for (const Scope* outer = &scope; outer != nullptr; outer = outer->outer)
    depth += std::ranges::count(outer->variables, "loop", [](const auto& variable) { return variable.first; });
  for (std::size_t i = 0; i < items.size(); ++i) {
    Scope inner{&scope};
    inner.set("loop", loop_variables(items, i, depth));
    bind(statement.names, items[i], inner);
    const int message = items[i].is_map() && items[i].map().message >= 0 ? items[i].map().message : message_;
    const Exchanged<int> owner(message_, message);
    if (run_block(statement.blocks[0], inner) == Flow::leave) break;
  }
  return Flow::normal;
}

Rendering::Flow Rendering::run_generation(const Statement& statement, Scope& scope) {
  Scope inner{&scope};
  const std::size_t begin = out_.text.size();
  const Flow flow = run_block(statement.blocks[0], inner);
  out_.generations.push_back({begin, out_.text.size()});
  return flow;
}

void Rendering::bind(const std::vector<std::string>& names, const Value& value, Scope& scope) {
  if (names.size() == 1) return scope.set(names[0], value);
  QUENCH_CHECK(value.is_list() && value.list().size() == names.size(), "{} variables for a value of type {}",
               names.size(), value.type_name());
  for (std::size_t i = 0; i < names.size(); ++i) scope.set(names[i], value.list()[i]);
}

void Rendering::run_assignment(const Statement& statement, Scope& scope) {
  Value value = evaluate(*statement.expressions[0], scope);
  if (statement.text.empty()) return bind(statement.names, value, scope);
  const Value owner = look_up(statement.names[0], scope);
  QUENCH_CHECK(owner.is_namespace(), "'{}' is {}, expected a namespace", statement.names[0], owner.type_name());
  auto& members = owner.name_space()->members.members;
  const auto known = std::ranges::find(members, statement.text, [](const auto& member) { return member.first; });
  if (known != members.end())
    known->second = std::move(value);
  else
    members.emplace_back(statement.text, std::move(value));
}

void Rendering::run_capture(const Statement& statement, Scope& scope) {
  std::string text;
  {
    const Exchanged<std::string*> target(target_, &text);
    Scope inner{&scope};
    run_block(statement.blocks[0], inner);
  }
  Scope input{&scope};
  input.set("", Value(std::move(text)));
  scope.set(statement.names[0], evaluate(*statement.expressions[0], input));
}

Value Rendering::call_macro(const Macro& macro, const Arguments& arguments) {
  const Level level(*this);
  Scope inner{&top_};
  const std::size_t count = macro.parameters.size(), first_default = count - macro.defaults.size();
  QUENCH_CHECK(arguments.values.size() <= count, "the macro '{}' takes {} arguments, not {}", macro.name, count,
               arguments.values.size());
  for (const auto& [keyword, value] : arguments.keywords)
    QUENCH_CHECK(std::ranges::find(macro.parameters, keyword) != macro.parameters.end(),
                 "the macro '{}' has no parameter '{}'", macro.name, keyword);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& name = macro.parameters[i];
    const Value* given = arguments.find(i, name);
    if (given != nullptr)
      inner.set(name, *given);
    else if (i >= first_default)
      inner.set(name, evaluate(*macro.defaults[i - first_default], inner));
    else
      inner.set(name, Undefined{name});
  }
  std::string text;
  const Exchanged<std::string*> target(target_, &text);
  run_block(*macro.body, inner);
  return text;
}

}  // namespace quench::jinja
