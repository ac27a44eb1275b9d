#pragma once
// Distance of a student's hidden states from a teacher's, and its gradient.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// Distance of rows s (student) and t (teacher) of H elements. Norms below 1e-8 count as 1e-8.
enum class HiddenDistance : std::uint8_t {
  mse,             // |s - t|^2 / H
  cosine,          // 1 - s t / (|s| |t|)
  normalized_mse,  // |s - t|^2 / |t|^2
};

struct HiddenLossArgs {
  Tensor student;   // [N,H], contiguous; f32/bf16
  Tensor teacher;   // [N,H], contiguous, dtype of student
  Tensor labels;    // i32 [N]; kIgnoreLabel: outputs 0
  Tensor losses;    // out, f32 [N]
  Tensor dstudent;  // out, [N,H], dtype of student: grad_scale * gradient of losses; may alias student or teacher
  HiddenDistance distance = HiddenDistance::mse;
  float grad_scale = 1.0f;
};

extern constinit KernelSlot<HiddenLossArgs> hidden_loss_slot;

// f32 arithmetic.
void hidden_loss(const HiddenLossArgs& args);

}  // namespace quench
