#pragma once
// Passes of an engine over slices of a model (autograd/tensor_parallel.h): rank 0 schedules and samples, the other
// ranks compute the same passes on their slices, as texts of TensorExchange::share() tell them. Rank 0 must end with
// end_passes(), the others run follow_passes().
//
// A text is the commands since the one before, each a byte and its arguments in the machine's byte order; the last one
// is a pass. Passes of all ranks sample the same tokens: their logits are the same bits.

#include <span>
#include <string>

#include "engine/passes.h"

namespace quench {

// Rank 0's commands, in the order of the calls of its EnginePasses.
class PassScript {
 public:
  // A cache of these sizes on the other ranks, in place of an earlier one.
  PassScript(const autograd::TensorExchange& exchange, std::int64_t slots, std::int64_t pages, std::int64_t slot_pages);

  // Before the pass.
  void run_chunks(std::span<const TokenChunk> chunks);
  void decode(std::span<const DecodeRow> rows);
  // With the next pass.
  void set_pages(std::int64_t slot, std::int64_t first, std::span<const std::int32_t> pages);
  void set_token(std::int64_t slot, std::int32_t token);
  void set_seen(std::int64_t slot, std::span<const std::int32_t> tokens);
  void set_allowed(std::int64_t slot, std::span<const std::int32_t> words);
  // A pass has failed.
  void abandon() const noexcept;

 private:
  void send();

  const autograd::TensorExchange& exchange_;
  std::string text_;
};

// Computes rank 0's passes, of one engine after another, until end_passes(). Throws what a pass throws, and
// CommunicationError once rank 0 is lost.
void follow_passes(const nn::CausalLm& model);
// Ends follow_passes() on the other ranks.
void end_passes(const autograd::TensorExchange& exchange);

}  // namespace quench
