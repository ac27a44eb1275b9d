#include "autograd/tensor_parallel.h"

#include <array>
#include <optional>

#include "autograd/recompute.h"
#include "autograd/tape.h"
#include "core/ops/elementwise.h"
#include "core/ops/embedding.h"
#include "core/ops/loss/vocabulary_parts.h"

namespace quench::autograd {
namespace {

// x [tokens,W] with rows of zeros for the ranks' rows; x itself if there are none.
Tensor padded_rows(const Tensor& x, const TensorExchange& exchange) {
  const std::int64_t tokens = x.size(0), all = exchange.rows_of(tokens) * exchange.size();
  if (all == tokens && x.is_contiguous()) return x;
  const Tensor padded = Tensor::empty({all, x.size(1)}, x.dtype(), x.device());
  copy_rows({.from = x, .to = padded.narrow(0, 0, tokens)});
  if (all > tokens) padded.narrow(0, tokens, all - tokens).zero();
  return padded;
}

Tensor gathered_rows(const Tensor& rows, std::int64_t tokens, const TensorExchange& exchange) {
  return exchange.gather(rows).narrow(0, 0, tokens);
}

}  // namespace

// Rows that were gathered in the forward pass, for the backward pass.
class GatherAgain {
 public:
  GatherAgain(Saved rows, std::int64_t tokens, const TensorExchange& exchange)
      : rows_(std::move(rows)), tokens_(tokens), exchange_(exchange) {}

  void begin() {
    const MemoryScope scope(MemoryCategory::activations);
    if (!pending_) pending_.emplace(exchange_.begin_gather(rows_.get()));
  }
  [[nodiscard]] Tensor rows() {
    begin();
    const Tensor whole = pending_->get();
    pending_.reset();
    return whole.narrow(0, 0, tokens_);
  }

 private:
  Saved rows_;
  std::int64_t tokens_;
  const TensorExchange& exchange_;
  std::optional<TensorExchange::Pending> pending_;
};

GatheredTokens gather_tokens(const Variable& x, std::int64_t tokens, const TensorExchange& exchange) {
  QUENCH_CHECK(x.shape()[0] == exchange.rows_of(tokens), "gather_tokens: {} rows of {} tokens on {} ranks",
               x.shape()[0], tokens, exchange.size());
  const MemoryScope scope(MemoryCategory::activations);
  GatheredTokens out{Variable(gathered_rows(x.value(), tokens, exchange)), nullptr};
  Tape::record("gather_tokens", {x}, std::array{&out.rows}, [&] {
    std::shared_ptr<RecomputeHandle> handle;
    if (Tape::current()->recompute() == Recompute::selective) {
      out.again = std::make_shared<GatherAgain>(Saved(x), tokens, exchange);
      handle = std::make_shared<RecomputeHandle>([again = out.again] { return again->rows(); }, true);
      out.rows.set_recompute(handle);
    }
    return [&exchange, handle, again = out.again, dx = x.gradient(), dout_of = out.rows.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const bool has_uses = handle != nullptr && handle->has_uses();
      if (has_uses) again->begin();
      TensorExchange::Pending sums = exchange.begin_reduce(padded_rows(dout_of->value(), exchange));
      if (has_uses) handle->run_uses(again->rows());
      dx->contribute(sums.get());
    };
  });
  return out;
}

Variable scatter_sums(const Variable& x, const TensorExchange& exchange, std::shared_ptr<GatherAgain> again) {
  const MemoryScope scope(MemoryCategory::activations);
  const std::int64_t tokens = x.shape()[0];
  Variable out(exchange.reduce(padded_rows(x.value(), exchange)));
  Tape::record("scatter_sums", {x}, std::array{&out}, [&] {
    return [&exchange, tokens, again = std::move(again), dx = x.gradient(), dout_of = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      TensorExchange::Pending whole = exchange.begin_gather(dout_of->value());
      if (again) again->begin();
      dx->contribute(whole.get().narrow(0, 0, tokens));
    };
  });
  return out;
}

Variable embedding_of_parts(const Weight& table, const Tensor& ids, const TensorExchange& exchange) {
  const MemoryScope scope(MemoryCategory::activations);
  const std::int64_t tokens = ids.size(0), count = table.shape()[0];
  const Tensor rows = Tensor::empty({tokens}, DType::i32, ids.device());
  const Tensor factors = Tensor::empty({tokens}, DType::f32, ids.device());
  own_rows({.ids = ids, .first = exchange.rank() * count, .count = count, .rows = rows, .factors = factors});
  const Tensor parts = Tensor::empty({tokens, table.shape()[1]}, table.dtype(), table.device());
  embedding({table.acquire().value(), rows, parts});
  scale_rows({.x = parts, .factors = factors});
  Variable out(exchange.reduce(padded_rows(parts, exchange)));
  Tape::record("embedding_of_parts", {table}, std::array{&out}, [&] {
    return [rows, factors, tokens, &exchange, dtable = table.gradient(), dout_of = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor gradient = gathered_rows(dout_of->value(), tokens, exchange);
      scale_rows({.x = gradient, .factors = factors});
      GradientTarget into = dtable->target();
      if (!into.accumulate) into.tensor.zero();
      embedding_backward({.dout = gradient, .ids = rows, .dtable = into.tensor});
    };
  });
  return out;
}

void CrossEntropyOfParts::run(const CrossEntropyArgs& chunk, std::int64_t /*first_row*/) {
  const MemoryScope scope(MemoryCategory::workspace);
  const std::int64_t rows = chunk.logits.size(0), first = exchange_.rank() * chunk.logits.size(1);
  const Tensor own = Tensor::empty({rows, kLogitsStatistics}, DType::f32, chunk.logits.device());
  logits_statistics({.logits = chunk.logits, .labels = chunk.labels, .first = first, .statistics = own});
  cross_entropy_part({.logits = chunk.logits,
                      .labels = chunk.labels,
                      .first = first,
                      .statistics = exchange_.gather(own),
                      .losses = chunk.losses,
                      .dlogits = chunk.dlogits,
                      .grad_scale = chunk.grad_scale});
}

}  // namespace quench::autograd
