#pragma once
// Forward passes of the engine over one paged KV cache, each with the sampling of its tokens. Asynchronous on a GPU,
// where decode passes are CUDA graphs, one for a number of rows and of keys.

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/memory/device_graph.h"
#include "core/ops/sampling/sample_tokens.h"
#include "core/tensor/host_copy.h"
#include "nn/attention/paged_keys.h"
#include "nn/decoder/causal_lm.h"

namespace quench {

// Results of a pass, on their way to the host.
struct PassResult {
  std::optional<HostCopy> sampled;  // SampledRow by row; none without rows
  std::optional<HostCopy> logits;   // f32 [rows, V]
  std::optional<HostCopy> losses;   // batch_invariant() alone: f32 [rows], as cross_entropy() in training

  [[nodiscard]] const SampledRow& row(std::int64_t i) const {
    return reinterpret_cast<const SampledRow*>(sampled->get().raw_data())[i];
  }
  // Natural logarithm of the sampled token's probability.
  [[nodiscard]] float logprob(std::int64_t i) const {
    return losses ? -losses->get().data<float>()[i] : logprob_of(row(i));
  }
};

// Tokens of a sequence whose keys are not cached yet.
struct TokenChunk {
  std::int64_t slot = 0;
  std::int64_t adapter = -1;
  std::int64_t length = 0;  // tokens before them
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> pages;    // pages of the sequence
  const SamplingRow* sampling = nullptr;  // how to sample the token after them; null: not at all
};

// The token after a slot's last sampled one.
struct DecodeRow {
  std::int64_t slot = 0;
  std::int64_t position = 0;  // place of the last sampled token, whose keys this pass computes
  SamplingRow sampling;
};

class PassScript;

class EnginePasses {
 public:
  // Slots of sequences, each with at most `slot_pages` of `pages` pages. The model must outlive it, with weights at
  // fixed addresses. `has_adapters`: its layers have an adapter bank. Of slices of a model that
  // rank 0 leads, it makes the calls, and the other ranks follow (engine/pass_script.h).
  EnginePasses(const nn::CausalLm& model, std::int64_t slots, std::int64_t pages, std::int64_t slot_pages,
               bool has_adapters);
  ~EnginePasses();
  EnginePasses(const EnginePasses&) = delete;
  EnginePasses& operator=(const EnginePasses&) = delete;

  // False: decode() is not available, and chunks of one token take its place.
  [[nodiscard]] bool decodes() const noexcept { return decodes_; }
  // Sampled rows in the order of the chunks that have `sampling`.
  [[nodiscard]] PassResult run_chunks(std::span<const TokenChunk> chunks, bool keep_logits);
  // Row i of the result is of slot i; rows of slots that are not named are undefined.
  [[nodiscard]] PassResult decode(std::span<const DecodeRow> rows, bool keep_logits);

  // Pages of a slot, from page `first` on; for decode().
  void set_pages(std::int64_t slot, std::int64_t first, std::span<const std::int32_t> pages);
  // Last token of a slot, where no pass has sampled it.
  void set_token(std::int64_t slot, std::int32_t token);
  // Adapter of a slot, for decode(); -1: none.
  void set_adapter(std::int64_t slot, std::int64_t adapter);
  // Tokens that SamplingRow::penalty of the slot acts on; later ones are added as they are sampled.
  void set_seen(std::int64_t slot, std::span<const std::int32_t> tokens);
  // Bits of the tokens that the slot's next one is drawn from; empty: all.
  void set_allowed(std::int64_t slot, std::span<const std::int32_t> words);

 private:
  struct Work {
    std::unique_ptr<DeviceGraph> graph;
    std::shared_ptr<const nn::LayerTables> tables;
    Tensor logits, sampled, losses;
    std::int64_t used = 0;  // by time_
  };
  // Rows and pages of a slot.
  using Shape = std::pair<std::int64_t, std::int64_t>;

  [[nodiscard]] Tensor sample(const Tensor& logits, const Tensor& rows) const;
  // Losses of sampled tokens, by row; undefined unless batch_invariant().
  [[nodiscard]] static Tensor losses_of(const Tensor& logits, const Tensor& tokens);
  void put_allowed(std::int64_t slot, std::span<const std::int32_t> words);
  void decode_pass(const Shape& shape, Work& work) const;
  [[nodiscard]] Work& captured(const Shape& shape);
  [[nodiscard]] Tensor on_device(const Tensor& pinned) const;

  const nn::CausalLm& model_;
  nn::KvCache cache_;
  std::unique_ptr<PassScript> script_;  // rank 0's, of slices
  bool decodes_ = false, captures_ = false;
  Tensor pages_;                          // i32 [slots, slot_pages]
  Tensor tokens_;                         // i32 [slots]
  Tensor adapters_;                       // i32 [slots]; undefined without a bank
  Tensor positions_;                      // i32 [slots]
  Tensor rows_;                           // u8 [slots, SamplingRow]
  Tensor seen_;                           // i32 [slots, V / 32]; undefined before the first penalty
  Tensor allowed_;                        // i32 [slots, V / 32]; undefined before the first grammar
  std::vector<bool> limited_;             // slots whose row of allowed_ is not of ones
  std::map<Shape, std::int64_t> passes_;  // number of passes of each shape
  std::map<Shape, Work> work_;
  std::int64_t time_ = 0;
};

}  // namespace quench
