#include "autograd/regions/kept_values.h"

namespace quench::autograd {
namespace {
thread_local KeptValues* current_values = nullptr;
}  // namespace

KeptValues* KeptValues::current() noexcept {
  return current_values;
}

void KeptValues::keep(const Tensor& first, const Tensor& second) {
  values_.emplace_back(HeldTensor(first, offloader_), HeldTensor(second, offloader_));
}

std::pair<Tensor, Tensor> KeptValues::take() {
  QUENCH_CHECK(replays_ && !values_.empty(), "a region's second run makes a call that its first did not");
  const auto [first, second] = std::move(values_.front());
  values_.pop_front();
  return {first.get(), second.get()};
}

KeptValues::Scope::Scope(KeptValues* values, bool replays) noexcept : previous_(current_values) {
  current_values = values;
  if (values != nullptr) values->replays_ = replays;
}
KeptValues::Scope::~Scope() {
  current_values = previous_;
}

}  // namespace quench::autograd
