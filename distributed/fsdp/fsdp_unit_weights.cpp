#include "distributed/fsdp/fsdp_unit_weights.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/ops/quantize/quantize.h"

namespace quench::distributed {

// One all-gather of several contents.
struct FsdpUnitWeights::PendingGather {
  explicit PendingGather(const FlatLayout& layout) : codes(DType::u8), scales(DType::f32) {
    for (const Tensor& small : layout.small) values.emplace_back(small.dtype());
  }

  [[nodiscard]] std::vector<CoalescedGather*> parcels() {
    std::vector<CoalescedGather*> all;
    for (CoalescedGather& coalesced : values) all.push_back(&coalesced);
    all.insert(all.end(), {&codes, &scales});
    std::erase_if(all, [](const CoalescedGather* coalesced) { return coalesced->empty(); });
    return all;
  }

  struct Large {
    ProcessGroup* group;
    Tensor own, whole;
    std::string_view label;
  };
  std::vector<CoalescedGather> values;  // one per flat buffer
  CoalescedGather codes, scales;
  std::vector<Large> large;
  std::vector<std::function<void()>> fills;  // write local chunks once buffers are allocated
};

FsdpUnitWeights::FsdpUnitWeights(std::string name, const FlatLayout& layout, bool double_buffered,
                                 std::shared_ptr<FsdpContext> shared)
    : name_(std::move(name)),
      layout_(layout),
      double_buffered_(double_buffered),
      shared_(std::move(shared)),
      entries_(layout.parameters.size()),
      columns_(layout, shared_) {}

FsdpUnitWeights::~FsdpUnitWeights() = default;

Tensor FsdpUnitWeights::allocate(const Shape& shape, DType dtype) {
  if (double_buffered_) return shared_->weights.acquire(shape, dtype);
  const MemoryScope scope(shared_->weights.category());
  return Tensor::empty(shape, dtype, shared_->device);
}

void FsdpUnitWeights::give_back(Tensor& buffer) {
  if (buffer.defined() && double_buffered_) shared_->weights.give_back(buffer);
  buffer = Tensor();
}

FsdpUnitWeights::Contents FsdpUnitWeights::bit_of(const nn::WeightFormats& forms, const autograd::WeightFormat& form) {
  if (forms.forward == form) return kForwardCodes;  // equal formats: one copy
  return forms.backward == form ? kBackwardCodes : 0;
}

const autograd::WeightFormat& FsdpUnitWeights::form_of(const Entry& entry, Contents bit) {
  return bit == kForwardCodes ? *entry.forms.forward : *entry.forms.backward;
}

void FsdpUnitWeights::begin_part(Phase part) {
  if (part == part_) return;
  // Usage depends only on the passes: equal on all processes.
  for (Entry& entry : entries_)
    if (const Contents used = std::exchange(entry.used, 0); used != 0)
      entry.wanted[static_cast<std::size_t>(part_)] = used;
  part_ = part;
}

void FsdpUnitWeights::take_forms() {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const FsdpParameter& parameter = layout_.parameters[i];
    if (parameter.layer == nullptr) continue;
    nn::WeightFormats forms = parameter.layer->kernel().weight_requirements(parameter.layer->weight()).gathered;
    // Values kept gathered serve both passes; two quantized formats would take as much memory and more traffic.
    if (shared_->keeps_whole && forms.forward != forms.backward) forms = {};
    Entry& entry = entries_[i];
    if (forms == entry.forms) continue;
    drop(i, kForwardCodes | kBackwardCodes);
    const auto wanted = [&](const auto& form) { return form ? bit_of(forms, *form) : kValues; };
    entry.wanted = {wanted(forms.forward), wanted(forms.backward)};
    entry.used = 0;
    entry.forms = forms;
  }
}

void FsdpUnitWeights::drop(std::size_t parameter, Contents contents) {
  Entry& entry = entries_[parameter];
  contents &= entry.there;
  if (contents == 0) return;
  end_gather();
  if ((contents & kValues) != 0) give_back(entry.values);
  for (const Contents bit : {kForwardCodes, kBackwardCodes}) {
    if ((contents & bit) == 0) continue;
    Codes& codes = entry.codes[codes_index(bit)];
    give_back(codes.payload);
    codes.scales = Tensor();
  }
  entry.there &= ~contents;
}

void FsdpUnitWeights::gather(Phase part) {
  begin_part(part);
  take_forms();
  std::vector<Contents> wanted;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    wanted.push_back(entry.wanted[static_cast<std::size_t>(part)]);
    if (entry.version != layout_.parameters[i].parameter->version)
      drop(i, entry.there);
    else if (users_ == 0)
      drop(i, ~wanted.back());
  }
  start_gather(wanted);
}

void FsdpUnitWeights::start_gather(const std::vector<Contents>& contents) {
  std::vector<Contents> missing;
  // Flat buffers sent in place: all parameters missing.
  std::vector<bool> together(layout_.small.size(), true);
  Contents any = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    missing.push_back(contents[i] & ~entries_[i].there);
    any |= missing.back();
    if (const auto& buffer = layout_.parameters[i].buffer; buffer && (missing.back() & kValues) == 0)
      together[*buffer] = false;
  }
  if (any == 0) return;
  auto pending_gather = std::make_unique<PendingGather>(layout_);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    entries_[i].version = layout_.parameters[i].parameter->version;
    entries_[i].there |= missing[i];
    if ((missing[i] & kValues) != 0) {
      const auto& buffer = layout_.parameters[i].buffer;
      load_values(i, buffer && together[*buffer], *pending_gather);
    }
    for (const Contents bit : {kForwardCodes, kBackwardCodes})
      if ((missing[i] & bit) != 0) load_codes(i, bit, *pending_gather);
  }
  columns_.share();  // amax for a cast of this gather
  const std::int64_t processes = shared_->processes();
  for (CoalescedGather* coalesced : pending_gather->parcels())
    coalesced->pack(allocate({coalesced->elements() * processes}, coalesced->dtype()));
  for (const auto& fill : std::exchange(pending_gather->fills, {})) fill();

  shared_->follow();
  {
    const StreamGuard guard(shared_->stream);
    shared_->for_each_group([&](ProcessGroup& group) {
      for (const auto& [of, own, whole, label] : pending_gather->large)
        if (of == &group) gathering_.push_back(group.all_gather(own, whole, label));
      if (&group != shared_->shard.get()) return;
      for (const CoalescedGather* coalesced : pending_gather->parcels())
        gathering_.push_back(coalesced->gather(group, name_));
    });
    pending_gather->large.clear();
  }
  columns_.share();  // amax of these casts, for the backward pass
  pending_gathers_.push_back(std::move(pending_gather));
}

void FsdpUnitWeights::load_values(std::size_t parameter, bool together, PendingGather& pending_gather) {
  const FsdpParameter& from = layout_.parameters[parameter];
  const Tensor& own = from.parameter->padded;
  const Tensor& whole = entries_[parameter].values = allocate(from.padded_shape, own.dtype());
  if (!from.small()) {
    pending_gather.large.push_back({from.group, own, whole, from.parameter->name});
    return;
  }
  CoalescedGather& coalesced = pending_gather.values[*from.buffer];
  const Tensor target = whole.reinterpret(coalesced.dtype());
  if (together) return coalesced.add_in_place(target, from.place, layout_.small[*from.buffer], shared_->processes());
  const std::size_t piece = coalesced.add(target, shared_->processes());
  pending_gather.fills.emplace_back([own, &coalesced, piece, rank = shared_->shard->rank()] {
    coalesced.own(piece, rank).copy_from(own.view({own.numel()}).reinterpret(coalesced.dtype()));
  });
}

void FsdpUnitWeights::load_codes(std::size_t parameter, Contents bit, PendingGather& pending_gather) {
  const FsdpParameter& from = layout_.parameters[parameter];
  Entry& entry = entries_[parameter];
  const autograd::WeightFormat& form = form_of(entry, bit);
  Codes& codes = entry.codes[codes_index(bit)];
  const std::int64_t processes = shared_->processes();
  const Shape& own_shape = from.parameter->padded.shape();
  const int rank = shared_->shard->rank();

  codes.payload = allocate(from.padded_shape, payload_dtype(form.element));
  std::function<Tensor()> payload = [own = codes.payload.narrow(0, rank * own_shape[0], own_shape[0])] { return own; };
  if (static_cast<std::size_t>(own_shape.numel()) < kSmallBytes) {
    const std::size_t piece = pending_gather.codes.add(codes.payload.reinterpret(DType::u8), processes);
    payload = [&coalesced = pending_gather.codes, piece, rank, own_shape, dtype = codes.payload.dtype()] {
      return coalesced.own(piece, rank).reinterpret(dtype).view(own_shape);
    };
  } else {
    pending_gather.large.push_back({from.group, payload(), codes.payload, from.parameter->name});
  }
  std::function<Tensor()> scales;
  if (form.granularity == Granularity::row) {
    const MemoryScope scope(shared_->weights.category());
    codes.scales = Tensor::empty({from.padded_shape[0], 1}, DType::f32, shared_->device);
    const std::size_t piece = pending_gather.scales.add(codes.scales, processes);
    scales = [&coalesced = pending_gather.scales, piece, rank, rows = own_shape[0]] {
      return coalesced.own(piece, rank).view({rows, 1});
    };
  } else if (form.granularity == Granularity::column) {
    if (!columns_.current(parameter)) columns_.find(parameter);
    scales = [this, parameter, &codes, &form] { return codes.scales = columns_.scale(parameter, form); };
  } else {
    scales = [this, &from, &codes, &form] { return codes.scales = shared_->weight_amax->scale(*from.parameter, form); };
  }
  pending_gather.fills.emplace_back(
      [this, parameter, bit, payload, scales] { cast_own_rows(parameter, bit, payload(), scales()); });
}

void FsdpUnitWeights::cast_own_rows(std::size_t parameter, Contents bit, const Tensor& payload, const Tensor& scales) {
  const Entry& entry = entries_[parameter];
  const autograd::WeightFormat& form = form_of(entry, bit);
  const Tensor& rows = layout_.parameters[parameter].parameter->padded;
  const QuantTensor out(code_format(form.element, form.granularity), rows.shape(), rows.dtype(), payload, scales);
  if (form.granularity != Granularity::row) {
    float8_cast_slot(shared_->device.type, {rows, out, {}});
    return;
  }
  // Column amax of the backward pass, fused into this cast.
  const bool finds_columns =
      entry.forms.backward && entry.forms.backward->granularity == Granularity::column && !columns_.current(parameter);
  float8_rows_slot(shared_->device.type,
                   {rows, out, form.power_of_two_scale, finds_columns ? columns_.begin(parameter) : Tensor()});
}

void FsdpUnitWeights::end_gather() {
  shared_->clock->wait(gathering_);
  for (const auto& pending_gather : std::exchange(pending_gathers_, {}))
    for (CoalescedGather* coalesced : pending_gather->parcels()) {
      Tensor buffer = coalesced->unpack(shared_->processes());
      give_back(buffer);
    }
}

void FsdpUnitWeights::free() {
  for (std::size_t i = 0; i < entries_.size(); ++i) drop(i, entries_[i].there);
}

void FsdpUnitWeights::hold() {
  gather(Phase::forward);
  end_gather();
  ++users_;
  held_ = true;
}

void FsdpUnitWeights::let_go() noexcept {
  held_ = false;
  --users_;
}

bool FsdpUnitWeights::changes_contents() const noexcept {
  return std::ranges::any_of(entries_, [](const Entry& entry) { return (entry.wanted[1] & ~entry.wanted[0]) != 0; });
}

void FsdpUnitWeights::need(std::size_t parameter, Contents bit) {
  if (held_) {
    QUENCH_CHECK_AS(ErrorCode::unsupported, (entries_[parameter].there & bit) != 0,
                    "{}: weights in the form that this pass reads were not gathered before it", name_);
    ++users_;
    return;
  }
  entries_[parameter].used |= bit;
  if ((entries_[parameter].there & bit) == 0) {
    std::vector<Contents> contents(entries_.size());
    contents[parameter] = bit;
    start_gather(contents);
  }
  end_gather();
  ++users_;
}

Tensor FsdpUnitWeights::acquire(std::size_t parameter) {
  if (users_ == 0) gather(part_);
  need(parameter, kValues);
  return entries_[parameter].values.narrow(0, 0, layout_.parameters[parameter].shape[0]);
}

QuantTensor FsdpUnitWeights::acquire_quantized(std::size_t parameter, const autograd::WeightFormat& form) {
  if (users_ == 0) gather(part_);
  const Entry& entry = entries_[parameter];
  const Contents bit = bit_of(entry.forms, form);
  if (bit == 0) return {};
  need(parameter, bit);
  const nn::Parameter& of = *layout_.parameters[parameter].parameter;
  const Codes& codes = entry.codes[codes_index(bit)];
  const std::int64_t rows = of.global_shape[0];
  return {code_format(form.element, form.granularity), of.global_shape, of.padded.dtype(),
          codes.payload.narrow(0, 0, rows),
          form.granularity == Granularity::row ? codes.scales.narrow(0, 0, rows) : codes.scales};
}

void FsdpUnitWeights::release() noexcept {
  if (--users_ == 0 && frees_itself_) free();
}

}  // namespace quench::distributed
