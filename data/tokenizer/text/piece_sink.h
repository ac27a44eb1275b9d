#pragma once
// Non-owning callable; pieces are valid during the callback only.

#include <memory>
#include <string_view>
#include <type_traits>

namespace quench {

class PieceSink {
 public:
  template <class Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, PieceSink>)
      PieceSink(const Callable& callable)  // NOLINT(google-explicit-constructor): lambdas are passed as sinks
      : callable_(std::addressof(callable)),
        call_([](const void* target, std::string_view piece) { (*static_cast<const Callable*>(target))(piece); }) {}

  void operator()(std::string_view piece) const { call_(callable_, piece); }

 private:
  const void* callable_;
  void (*call_)(const void*, std::string_view);
};

}  // namespace quench
