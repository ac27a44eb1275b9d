#include <algorithm>

#include "core/system/check.h"
#include "data/jinja/jinja_rendering.h"

namespace quench::jinja {
namespace {

constexpr int kMaxDepth = 500;

}  // namespace

Rendering::Level::Level(Rendering& rendering) : rendering_(rendering) {
  QUENCH_CHECK(++rendering.depth_ <= kMaxDepth || --rendering.depth_ < 0, "nested too deeply");
}

void Scope::set(std::string_view name, Value value) {
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
    case StatementKind::assign: bind(statement.target, evaluate(*statement.expressions[0], scope), scope); break;
    case StatementKind::capture:
    case StatementKind::filter: return run_capture(statement, scope);
    case StatementKind::with: return run_with(statement, scope);
    case StatementKind::call: run_call(statement, scope); break;
    case StatementKind::macro: define(*statement.macro, statement.macro->name, scope); break;
    case StatementKind::generation: return run_generation(statement, scope);
    case StatementKind::scope: return run_inner(statement, scope);
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
  return run_items(statement, items_of(evaluate(*statement.expressions[0], scope), meter_), 0, scope);
}

Rendering::Flow Rendering::run_items(const Statement& statement, List items, std::int64_t depth, const Scope& scope) {
  if (statement.expressions[1]) {
    List kept;
    for (Value& item : items) {
      InnerScope inner(*this, scope);
      bind(statement.target, item, *inner);
      if (evaluate(*statement.expressions[1], *inner).truthy()) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    InnerScope inner(*this, scope);
    return run_block(statement.blocks[1], *inner);
  }
  const auto loop = std::make_shared<LoopState>(LoopState{.items = std::move(items),
                                                          .depth = depth,
                                                          .statement = statement.recursive ? &statement : nullptr,
                                                          .outer = &scope});
  Flow flow = Flow::normal;
  try {
    for (loop->index = 0; loop->index < loop->items.size() && flow != Flow::leave; ++loop->index) {
      const Value& item = loop->items[loop->index];
      InnerScope inner(*this, scope);
      inner->set("loop", loop);
      bind(statement.target, item, *inner);
      const int message = item.is_map() && item.map().message >= 0 ? item.map().message : message_;
      const Exchanged<int> owner(message_, message);
      flow = run_block(statement.blocks[0], *inner);
    }
  } catch (...) {
    loop->running = false;
    throw;
  }
  loop->running = false;
  return Flow::normal;
}

Rendering::Flow Rendering::run_inner(const Statement& statement, Scope& scope) {
  InnerScope inner(*this, scope);
  return run_block(statement.blocks[0], *inner);
}

Rendering::Flow Rendering::run_generation(const Statement& statement, Scope& scope) {
  const std::size_t begin = out_.text.size();
  const Flow flow = run_inner(statement, scope);
  out_.generations.push_back({begin, out_.text.size()});
  return flow;
}

Rendering::Flow Rendering::run_with(const Statement& statement, Scope& scope) {
  InnerScope inner(*this, scope);
  for (std::size_t i = 0; i < statement.expressions.size(); ++i)
    bind(statement.target.parts[i], evaluate(*statement.expressions[i], scope), *inner);
  return run_block(statement.blocks[0], *inner);
}

// May unpack the value's items.
void Rendering::bind(const Target& target, const Value& value, Scope& scope) {
  if (target.parts.empty()) {
    if (target.attribute.empty()) return scope.set(target.name, value);
    const Value owner = look_up(target.name, scope);
    QUENCH_CHECK(owner.is_namespace() && owner.name_space()->kind == NamespaceKind::plain,
                 "'{}' is {}, expected a namespace", target.name, owner.type_name());
    return owner.name_space()->members.set(target.attribute, value);
  }
  const List items = items_of(value, meter_);
  QUENCH_CHECK(items.size() == target.parts.size(), "{} variables for a value of type {} with {} items",
               target.parts.size(), value.type_name(), items.size());
  for (std::size_t i = 0; i < items.size(); ++i) bind(target.parts[i], items[i], scope);
}

// To the output or a variable.
Rendering::Flow Rendering::run_capture(const Statement& statement, Scope& scope) {
  std::string text;
  {
    const Exchanged<std::string*> target(target_, &text);
    if (const Flow flow = run_inner(statement, scope); flow != Flow::normal) return flow;
  }
  InnerScope input(*this, scope);
  input->set("", Value(std::move(text)));
  const Value value = evaluate(*statement.expressions[0], *input);
  if (statement.kind == StatementKind::filter)
    write(text_of(value));
  else
    bind(statement.target, value, scope);
  return Flow::normal;
}

void Rendering::define(const Macro& macro, std::string_view name, Scope& scope) {
  for (const Scope* at = &scope; at != nullptr && !at->kept; at = at->outer) at->kept = true;
  scope.set(name, MacroValue{&macro, &scope});
}

void Rendering::run_call(const Statement& statement, Scope& scope) {
  InnerScope inner(*this, scope);
  define(*statement.macro, "caller", *inner);
  const Value caller = inner->variables.back().second;
  write(text_of(evaluate_call(*statement.expressions[0], scope, &caller)));
}

}  // namespace quench::jinja
