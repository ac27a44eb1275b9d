#pragma once
// Kept values: results that the second run of a recomputed region (autograd/recompute.h) takes from its first, because
// they cost more time than memory: attention's.

#include <deque>
#include <memory>
#include <utility>

#include "autograd/offload.h"

namespace quench::autograd {

// Tensor until the backward pass: on its device, or in host memory where an offloader is given.
class HeldTensor {
 public:
  // The tensor must not be written any more.
  HeldTensor(Tensor tensor, ActivationOffloader* offloader) : tensor_(std::move(tensor)), offloader_(offloader) {
    if (offloader_ != nullptr) offloaded_ = offloader_->send(std::exchange(tensor_, Tensor()));
  }
  [[nodiscard]] Tensor get() const { return offloaded_ ? offloader_->get(*offloaded_) : tensor_; }

 private:
  Tensor tensor_;
  ActivationOffloader* offloader_;
  std::shared_ptr<OffloadedTensor> offloaded_;
};

// Pairs of tensors of one region, in the order of its calls.
class KeptValues {
 public:
  explicit KeptValues(ActivationOffloader* offloader) : offloader_(offloader) {}

  // For a function of the region. Null: nothing is kept.
  [[nodiscard]] static KeptValues* current() noexcept;
  // In the second run: take() has what the same call kept.
  [[nodiscard]] bool replays() const noexcept { return replays_; }
  void keep(const Tensor& first, const Tensor& second);
  [[nodiscard]] std::pair<Tensor, Tensor> take();

  // Scope of a run in which `values` are current; null hides those of an outer region.
  class Scope {
   public:
    Scope(KeptValues* values, bool replays) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    KeptValues* previous_;
  };

 private:
  ActivationOffloader* offloader_;
  bool replays_ = false;
  std::deque<std::pair<HeldTensor, HeldTensor>> values_;
};

}  // namespace quench::autograd
