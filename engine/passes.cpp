#include "engine/passes.h"

#include <algorithm>
#include <exception>
#include <numeric>

#include "autograd/tensor_parallel.h"
#include "core/device/determinism.h"
#include "core/device/read_only_weights.h"
#include "core/ops/kv_cache/paged_attention.h"
#include "core/ops/loss/cross_entropy.h"
#include "core/system/log.h"
#include "engine/pass_script.h"
#include "nn/modules/adapter_rows.h"

namespace quench {
namespace {

constexpr std::int64_t kMostGraphs = 24;

// Pointers of the weights.
std::vector<const void*> weight_addresses(const nn::CausalLm& model) {
  std::vector<const void*> all;
  for (const nn::Parameter* parameter : model.parameters())
    if (const Tensor& value = parameter->variable.value(); value.defined()) all.push_back(value.raw_data());
  return all;
}

bool kernel_takes(const nn::CausalLm& model) {
  return std::ranges::all_of(model.config().blocks, [&](const nn::BlockSpec& block) {
    return paged_attention_takes(model.options().device, model.options().dtype, block.attention.key_dim,
                                 model.kv_cache().format != nullptr);
  });
}

// A decode pass is made for the next of these numbers of rows: powers of two to 8, then multiples of 8, then of 32.
std::int64_t row_bucket(std::int64_t rows, std::int64_t most) {
  std::int64_t bucket = 1;
  while (bucket < rows && bucket < 8) bucket *= 2;
  const std::int64_t step = rows > 64 ? 32 : 8;
  if (rows > 8) bucket = (rows + step - 1) / step * step;
  return std::min(bucket, most);
}

// And of pages: 8, then four times as many.
std::int64_t page_bucket(std::int64_t pages, std::int64_t most) {
  std::int64_t bucket = 8;
  while (bucket < pages) bucket *= 4;
  return std::min(bucket, most);
}

std::int32_t cache_row(std::span<const std::int32_t> pages, std::int64_t place) {
  return static_cast<std::int32_t>(pages[static_cast<std::size_t>(place / nn::kPageTokens)] * nn::kPageTokens +
                                   place % nn::kPageTokens);
}

// Abandons the script's pass unless it ends without an error.
class ScriptedPass {
 public:
  explicit ScriptedPass(const PassScript* script) : script_(script), errors_(std::uncaught_exceptions()) {}
  ~ScriptedPass() {
    if (script_ != nullptr && std::uncaught_exceptions() > errors_) script_->abandon();
  }
  ScriptedPass(const ScriptedPass&) = delete;
  ScriptedPass& operator=(const ScriptedPass&) = delete;

 private:
  const PassScript* script_;
  int errors_;
};

}  // namespace

EnginePasses::EnginePasses(const nn::CausalLm& model, std::int64_t slots, std::int64_t pages, std::int64_t slot_pages,
                           bool has_adapters)
    : model_(model), cache_(model.make_cache(pages * nn::kPageTokens)) {
  const std::int64_t longest = slot_pages * nn::kPageTokens;
  decodes_ = !nn::rotations_depend_on_length(model.config(), longest) && kernel_takes(model);
  const Device device = model.options().device;
  const autograd::TensorExchange* exchange = model.tensor_exchange();
  captures_ = decodes_ && model.weights_stay() && !device.is_cpu() && exchange == nullptr;
  if (exchange != nullptr) {
    QUENCH_CHECK_AS(ErrorCode::unsupported, !has_adapters, "a bank of adapters over slices of a model");
    if (exchange->is_led() && exchange->rank() == 0)
      script_ = std::make_unique<PassScript>(*exchange, slots, pages, slot_pages);
  }
  // Builds the tables of all positions once.
  if (decodes_) (void)model.make_context({{0, 0, 0, longest}}, 0);
  const MemoryScope scope(MemoryCategory::data);
  pages_ = Tensor::zeros({slots, slot_pages}, DType::i32, device);
  tokens_ = Tensor::zeros({slots}, DType::i32, device);
  positions_ = Tensor::zeros({slots}, DType::i32, device);
  rows_ = Tensor::zeros({slots, static_cast<std::int64_t>(sizeof(SamplingRow))}, DType::u8, device);
  if (has_adapters) adapters_ = Tensor::zeros({slots}, DType::i32, device);
}

EnginePasses::~EnginePasses() = default;

Tensor EnginePasses::on_device(const Tensor& pinned) const {
  return pinned.to(model_.options().device);
}

Tensor EnginePasses::sample(const Tensor& logits, const Tensor& rows) const {
  const Tensor sampled =
      Tensor::empty({rows.size(0), static_cast<std::int64_t>(sizeof(SampledRow))}, DType::u8, logits.device());
  sample_tokens(
      {.logits = logits, .rows = rows, .tokens = tokens_, .seen = seen_, .sampled = sampled, .allowed = allowed_});
  return sampled;
}

Tensor EnginePasses::losses_of(const Tensor& logits, const Tensor& tokens) {
  if (!batch_invariant()) return {};
  const Tensor losses = Tensor::empty(tokens.shape(), DType::f32, tokens.device());
  cross_entropy({.logits = logits, .labels = tokens, .losses = losses});
  return losses;
}

PassResult EnginePasses::run_chunks(std::span<const TokenChunk> chunks, bool keep_logits) {
  const ScriptedPass scripted(script_.get());
  if (script_) script_->run_chunks(chunks);
  const autograd::NoGrad no_grad;
  const Device device = model_.options().device;
  std::int64_t tokens = 0, keys = 0, samples = 0;
  bool reads_cache = model_.kv_cache().format != nullptr;  // codes, whatever the chunks
  for (const TokenChunk& chunk : chunks) {
    const auto count = static_cast<std::int64_t>(chunk.tokens.size());
    tokens += count;
    keys += chunk.length + count;
    samples += chunk.sampling != nullptr ? 1 : 0;
    reads_cache = reads_cache || chunk.length > 0;
  }
  const Tensor ids = Tensor::empty_pinned({tokens}, DType::i32, device),
               positions = Tensor::empty_pinned({tokens}, DType::i32, device),
               token_rows = Tensor::empty_pinned({tokens}, DType::i32, device),
               adapters = Tensor::empty_pinned({adapters_.defined() ? tokens : 0}, DType::i32, device),
               key_rows = Tensor::empty_pinned({keys}, DType::i32, device),
               sampling =
                   Tensor::empty_pinned({samples, static_cast<std::int64_t>(sizeof(SamplingRow))}, DType::u8, device);
  std::vector<SequenceRange> sequences;
  std::vector<std::int64_t> last;
  std::int64_t at = 0, key = 0;
  for (const TokenChunk& chunk : chunks) {
    const auto count = static_cast<std::int64_t>(chunk.tokens.size());
    sequences.push_back({at, count, key, chunk.length + count});
    std::ranges::copy(chunk.tokens, ids.data<std::int32_t>() + at);
    for (std::int64_t place = 0; place < chunk.length + count; ++place)
      key_rows.data<std::int32_t>()[key + place] = cache_row(chunk.pages, place);
    std::copy_n(key_rows.data<std::int32_t>() + key + chunk.length, count, token_rows.data<std::int32_t>() + at);
    std::iota(positions.data<std::int32_t>() + at, positions.data<std::int32_t>() + at + count,
              static_cast<std::int32_t>(chunk.length));
    if (adapters_.defined())
      std::fill_n(adapters.data<std::int32_t>() + at, count, static_cast<std::int32_t>(chunk.adapter));
    at += count;
    key += chunk.length + count;
    if (chunk.sampling == nullptr) continue;
    reinterpret_cast<SamplingRow*>(sampling.raw_data())[last.size()] = *chunk.sampling;
    reinterpret_cast<SamplingRow*>(sampling.raw_data())[last.size()].to = static_cast<std::int32_t>(chunk.slot);
    last.push_back(at - 1);
  }
  const nn::AdapterRowsScope scope(adapters_.defined() ? on_device(adapters) : Tensor());
  const nn::PagedKeys paged{
      .cache = &cache_, .token_rows = on_device(token_rows), .key_rows = reads_cache ? on_device(key_rows) : Tensor()};
  nn::ForwardContext context = model_.make_context(std::move(sequences), positions);
  context.paged = &paged;
  const Tensor hidden = model_.hidden(on_device(ids), context).value();
  if (last.empty()) return {};
  const Tensor states =
      Tensor::empty({static_cast<std::int64_t>(last.size()), hidden.size(1)}, hidden.dtype(), hidden.device());
  for (std::size_t i = 0; i < last.size(); ++i)
    states.narrow(0, static_cast<std::int64_t>(i), 1).copy_from(hidden.narrow(0, last[i], 1));
  const Tensor logits = model_.logits(autograd::Variable(states));
  PassResult result;
  result.sampled.emplace(sample(logits, on_device(sampling)));
  if (batch_invariant()) {
    const Tensor labels = Tensor::empty({states.size(0)}, DType::i32, device);
    std::int64_t row = 0;
    for (const TokenChunk& chunk : chunks)
      if (chunk.sampling != nullptr) labels.narrow(0, row++, 1).copy_from(tokens_.narrow(0, chunk.slot, 1));
    result.losses.emplace(losses_of(logits, labels));
  }
  if (keep_logits) result.logits.emplace(logits);
  return result;
}

void EnginePasses::decode_pass(const Shape& shape, Work& work) const {
  const autograd::NoGrad no_grad;
  const auto& [rows, pages] = shape;
  nn::ForwardContext context = model_.make_context({{0, 0, 0, pages * nn::kPageTokens}}, positions_.narrow(0, 0, rows));
  context.sequences.clear();
  const nn::PagedKeys paged{.cache = &cache_, .pages = pages_.narrow(0, 0, rows).narrow(1, 0, pages)};
  context.paged = &paged;
  const nn::AdapterRowsScope scope(adapters_.defined() ? adapters_.narrow(0, 0, rows) : Tensor());
  work.tables = context.rotations;
  work.logits = model_.logits(model_.hidden(tokens_.narrow(0, 0, rows), context));
  work.sampled = sample(work.logits, rows_.narrow(0, 0, rows));
  work.losses = losses_of(work.logits, tokens_.narrow(0, 0, rows));
}

EnginePasses::Work& EnginePasses::captured(const Shape& shape) {
  Work& work = work_[shape];
  // The first pass of a shape is not captured: kernels are loaded and chosen in it.
  if (captures_ && work.graph == nullptr && passes_[shape]++ > 0) {
    if (std::ssize(work_) > kMostGraphs) {
      const auto oldest = std::ranges::min_element(
          work_, {}, [&](const auto& one) { return one.first == shape ? time_ + 1 : one.second.used; });
      work_.erase(oldest);
    }
    try {
      work.graph = DeviceGraph::capture(tokens_.device(), [&] {
        std::vector<const void*> constant = weight_addresses(model_);
        constant.push_back(pages_.raw_data());
        const ReadOnlyWeightsScope scope(std::move(constant));
        decode_pass(shape, work);
      });
    } catch (const Error& error) {
      QUENCH_LOG_DEBUG("decoding runs without a device graph: {}", error.what());
      captures_ = false;
    }
  }
  work.used = ++time_;
  return work;
}

PassResult EnginePasses::decode(std::span<const DecodeRow> rows, bool keep_logits) {
  const ScriptedPass scripted(script_.get());
  if (script_) script_->decode(rows);
  std::int64_t most_rows = 0, most_keys = 0;
  for (const DecodeRow& row : rows) {
    most_rows = std::max(most_rows, row.slot + 1);
    most_keys = std::max(most_keys, row.position + 1);
  }
  const std::int64_t key_pages = (most_keys + nn::kPageTokens - 1) / nn::kPageTokens;
  const Shape shape{captures_ ? row_bucket(most_rows, positions_.size(0)) : most_rows,
                    captures_ ? page_bucket(key_pages, pages_.size(1)) : key_pages};
  const Device device = tokens_.device();
  const Tensor positions = Tensor::empty_pinned({shape.first}, DType::i32, device),
               sampling = Tensor::empty_pinned({shape.first, static_cast<std::int64_t>(sizeof(SamplingRow))}, DType::u8,
                                               device);
  std::fill_n(positions.data<std::int32_t>(), shape.first, -1);
  auto* const sampling_rows = reinterpret_cast<SamplingRow*>(sampling.raw_data());
  for (std::int64_t i = 0; i < shape.first; ++i) sampling_rows[i] = {.to = static_cast<std::int32_t>(i)};
  for (const DecodeRow& row : rows) {
    positions.data<std::int32_t>()[row.slot] = static_cast<std::int32_t>(row.position);
    sampling_rows[row.slot] = row.sampling;
    sampling_rows[row.slot].to = static_cast<std::int32_t>(row.slot);
  }
  positions_.narrow(0, 0, shape.first).copy_from(positions);
  rows_.narrow(0, 0, shape.first).copy_from(sampling);
  Work& work = captured(shape);
  if (work.graph != nullptr)
    work.graph->launch();
  else
    decode_pass(shape, work);
  PassResult result;
  result.sampled.emplace(work.sampled);
  if (work.losses.defined()) result.losses.emplace(work.losses);
  if (keep_logits) result.logits.emplace(work.logits);
  return result;
}

void EnginePasses::set_pages(std::int64_t slot, std::int64_t first, std::span<const std::int32_t> pages) {
  if (!decodes_ || pages.empty()) return;
  if (script_) script_->set_pages(slot, first, pages);
  const Tensor row = Tensor::empty_pinned({static_cast<std::int64_t>(pages.size())}, DType::i32, pages_.device());
  std::ranges::copy(pages, row.data<std::int32_t>());
  pages_.select(0, slot).narrow(0, first, row.size(0)).copy_from(row);
}

void EnginePasses::set_token(std::int64_t slot, std::int32_t token) {
  if (script_) script_->set_token(slot, token);
  const Tensor value = Tensor::empty_pinned({1}, DType::i32, tokens_.device());
  *value.data<std::int32_t>() = token;
  tokens_.narrow(0, slot, 1).copy_from(value);
}

void EnginePasses::set_adapter(std::int64_t slot, std::int64_t adapter) {
  if (!adapters_.defined()) return;
  const Tensor value = Tensor::empty_pinned({1}, DType::i32, adapters_.device());
  *value.data<std::int32_t>() = static_cast<std::int32_t>(adapter);
  adapters_.narrow(0, slot, 1).copy_from(value);
}

void EnginePasses::set_seen(std::int64_t slot, std::span<const std::int32_t> tokens) {
  if (script_) script_->set_seen(slot, tokens);
  const std::int64_t words = (model_.config().vocab_size + 31) / 32;
  if (!seen_.defined()) {
    seen_ = Tensor::zeros({tokens_.size(0), words}, DType::i32, tokens_.device());
    work_.clear();  // captured without it
  }
  const Tensor row = Tensor::empty_pinned({words}, DType::i32, tokens_.device());
  auto* const bits = row.data<std::int32_t>();
  std::fill_n(bits, words, 0);
  for (const std::int32_t token : tokens)
    bits[token / 32] = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits[token / 32]) | 1u << token % 32);
  seen_.select(0, slot).copy_from(row);
}

void EnginePasses::set_allowed(std::int64_t slot, std::span<const std::int32_t> words) {
  if (script_ && (allowed_.defined() || !words.empty())) script_->set_allowed(slot, words);
  put_allowed(slot, words);
}

void EnginePasses::put_allowed(std::int64_t slot, std::span<const std::int32_t> words) {
  const std::int64_t count = (model_.config().vocab_size + 31) / 32;
  if (!allowed_.defined()) {
    if (words.empty()) return;
    allowed_ = Tensor::empty({tokens_.size(0), count}, DType::i32, tokens_.device());
    limited_.assign(static_cast<std::size_t>(tokens_.size(0)), true);
    work_.clear();  // captured without it
    for (std::int64_t other = 0; other < tokens_.size(0); ++other) put_allowed(other, {});
  }
  if (words.empty() && !limited_[static_cast<std::size_t>(slot)]) return;
  const Tensor row = Tensor::empty_pinned({count}, DType::i32, tokens_.device());
  if (words.empty())
    std::fill_n(row.data<std::int32_t>(), count, -1);
  else
    std::ranges::copy(words, row.data<std::int32_t>());
  allowed_.select(0, slot).copy_from(row);
  limited_[static_cast<std::size_t>(slot)] = !words.empty();
}

}  // namespace quench
