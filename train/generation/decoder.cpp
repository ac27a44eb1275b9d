#include "train/generation/decoder.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "core/device/call_counter.h"
#include "core/device/read_only_weights.h"
#include "core/system/log.h"

namespace quench {
namespace {

// Smaller key bounds are not worth a separate capture.
constexpr std::int64_t kMinBound = 1024;

CallCounter captured_passes("generation.captured");

// Data pointers of the weights.
std::vector<const void*> weight_addresses(const nn::CausalLm& model) {
  std::vector<const void*> all;
  for (const nn::Parameter* parameter : model.parameters())
    if (const Tensor& value = parameter->variable.value(); value.defined()) all.push_back(value.raw_data());
  return all;
}

}  // namespace

Decoder::Decoder(const nn::CausalLm& model, std::int64_t capacity) : model_(model), cache_(model.make_cache(capacity)) {
  // Builds the full table once instead of token by token.
  (void)model.make_context({{0, 0, 0, capacity}}, 0);
  // Length-dependent RoPE changes the pass at every token; exchanges between ranks are not captured.
  capturable_ = model.weights_stay() && model.tensor_exchange() == nullptr &&
                !nn::rotations_depend_on_length(model.config(), capacity);
  for (const nn::BlockSpec& block : model.config().blocks)
    if (const std::int64_t chunk = block.attention.chunk; chunk > 0)
      chunk_ = chunk_ == 0 ? chunk : std::min(chunk_, chunk);
  const Device device = model.options().device;
  const MemoryScope scope(MemoryCategory::data);
  const Tensor positions = Tensor::empty_pinned({capacity}, DType::i32, device);
  std::iota(positions.data<std::int32_t>(), positions.data<std::int32_t>() + capacity, 0);
  positions_ = positions.to(device);
  if (nn::cached_keys_change(model.config(), 1, capacity)) ids_ = Tensor::empty({capacity}, DType::i32, device);
  token_ = Tensor::zeros({1}, DType::i32, device);
  position_ = Tensor::zeros({1}, DType::i32, device);
}

Tensor Decoder::pass(const Tensor& ids, nn::ForwardContext context) {
  const autograd::NoGrad no_grad;
  context.cache = &cache_;
  const autograd::Variable hidden = model_.hidden(ids, context);
  return model_.logits(autograd::Variable(hidden.value().narrow(0, ids.size(0) - 1, 1)));
}

Tensor Decoder::logits(const Tensor& ids) {
  const std::int64_t tokens = ids.size(0), length = cache_.length();
  cache_.check_room(tokens);
  if (ids_.defined()) {
    ids_.narrow(0, length, tokens).copy_from(ids);
    const std::int64_t computed_at = std::exchange(keys_length_, length + tokens);
    if (length > 0 && nn::cached_keys_change(model_.config(), computed_at, length + tokens)) {
      rewind(0);
      return logits(ids_.narrow(0, 0, length + tokens));
    }
  }
  const Tensor positions = positions_.narrow(0, length, tokens);
  Tensor result;
  if (tokens == 1 && captured()) {
    token_.copy_from(ids);
    position_.copy_from(positions);
    work_->launch();
    captured_passes.add();
    result = logits_;
  } else {
    result = pass(ids, model_.make_context({{0, tokens, 0, length + tokens}}, positions));
  }
  cache_.advance(tokens);
  return result;
}

bool Decoder::captured() {
  // The first single-token pass runs uncaptured, so that lazy initialization, including kernel loading, precedes the
  // capture.
  if (single_passes_++ == 0 || !capturable_) return false;
  const std::int64_t keys = cache_.length() + 1;
  // After the first attention chunk, a query's first key depends on its position.
  const std::int64_t most = chunk_ > 0 ? std::min(chunk_, cache_.capacity()) : cache_.capacity();
  if (keys > most) return false;
  if (work_ == nullptr || keys > bound_)
    capture(std::min(most,
                     std::max(kMinBound, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(keys))))));
  return capturable_;
}

void Decoder::capture(std::int64_t bound) {
  try {
    work_ = DeviceGraph::capture(token_.device(), [&] {
      const ReadOnlyWeightsScope constant(weight_addresses(model_));
      nn::ForwardContext context = model_.make_context({{0, 1, 0, bound}}, position_);
      context.length_on_device = true;
      tables_ = context.rotations;
      logits_ = pass(token_, std::move(context));
    });
    bound_ = bound;
  } catch (const Error& error) {
    QUENCH_LOG_DEBUG("decoding runs without a device graph: {}", error.what());
    work_ = nullptr;
  }
  capturable_ = work_ != nullptr;
}

void Decoder::rewind(std::int64_t length) {
  QUENCH_CHECK(length >= 0 && length <= cache_.length(), "Decoder: {} of {} tokens cannot be kept", length,
               cache_.length());
  cache_.advance(length - cache_.length());
}

Tensor Decoder::logits(std::span<const std::int32_t> ids) {
  const Device device = model_.options().device;
  const Tensor host = Tensor::empty_pinned({static_cast<std::int64_t>(ids.size())}, DType::i32, device);
  std::ranges::copy(ids, host.data<std::int32_t>());
  return logits(host.to(device));
}

}  // namespace quench
