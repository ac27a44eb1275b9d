#include "distributed/fsdp/unit_weights.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/ops/quantize/quantize.h"

namespace quench::distributed {

// One gather: what of this process's own goes where.
struct UnitWeights::Shipment {
  explicit Shipment(const UnitLayout& layout) : codes(DType::u8), scales(DType::f32) {
    for (const Tensor& small : layout.small) values.emplace_back(small.dtype());
  }

  // Those that hold anything.
  [[nodiscard]] std::vector<Parcel*> parcels() {
    std::vector<Parcel*> all;
    for (Parcel& parcel : values) all.push_back(&parcel);
    all.insert(all.end(), {&codes, &scales});
    std::erase_if(all, [](const Parcel* parcel) { return parcel->empty(); });
    return all;
  }

  struct Large {
    ProcessGroup* group;
    Tensor own, whole;
    std::string_view label;
  };
  std::vector<Parcel> values;  // of the layout's buffers
  Parcel codes, scales;
  std::vector<Large> large;
  std::vector<std::function<void()>> fills;  // write this process's part, once the parcels have memory
};

UnitWeights::UnitWeights(std::string name, const UnitLayout& layout, bool takes_turns,
                         std::shared_ptr<UnitShared> shared)
    : name_(std::move(name)),
      layout_(layout),
      takes_turns_(takes_turns),
      shared_(std::move(shared)),
      entries_(layout.parameters.size()),
      columns_(layout, shared_) {}

UnitWeights::~UnitWeights() = default;

Tensor UnitWeights::allocate(const Shape& shape, DType dtype) {
  if (takes_turns_) return shared_->weights.acquire(shape, dtype);
  const MemoryScope scope(shared_->weights.category());
  return Tensor::empty(shape, dtype, shared_->device);
}

void UnitWeights::give_back(Tensor& buffer) {
  if (buffer.defined() && takes_turns_) shared_->weights.give_back(buffer);
  buffer = Tensor();
}

UnitWeights::Contents UnitWeights::bit_of(const nn::WeightFormats& forms, const autograd::WeightFormat& form) {
  if (forms.forward == form) return kForwardCodes;  // serves both where they are the same
  return forms.backward == form ? kBackwardCodes : 0;
}

const autograd::WeightFormat& UnitWeights::form_of(const Entry& entry, Contents bit) {
  return bit == kForwardCodes ? *entry.forms.forward : *entry.forms.backward;
}

void UnitWeights::begin_part(PassPart part) {
  if (part == part_) return;
  // What one process reads depends on nothing but the passes that all of them make, so all learn the same.
  for (Entry& entry : entries_)
    if (const Contents used = std::exchange(entry.used, 0); used != 0)
      entry.wanted[static_cast<std::size_t>(part_)] = used;
  part_ = part;
}

void UnitWeights::take_forms() {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const UnitParameter& parameter = layout_.parameters[i];
    if (parameter.layer == nullptr) continue;
    nn::WeightFormats forms = parameter.layer->kernel().preferred_weight_formats(parameter.layer->weight());
    // Values that stay serve both passes; two forms of codes would take as much, and more to send.
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

void UnitWeights::drop(std::size_t parameter, Contents contents) {
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

void UnitWeights::gather(PassPart part) {
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
  bring(wanted);
}

void UnitWeights::bring(const std::vector<Contents>& contents) {
  std::vector<Contents> missing;
  // Small parameters whose buffer goes as it lies there: all of them are missing.
  std::vector<bool> together(layout_.small.size(), true);
  Contents any = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    missing.push_back(contents[i] & ~entries_[i].there);
    any |= missing.back();
    if (const auto& buffer = layout_.parameters[i].buffer; buffer && (missing.back() & kValues) == 0)
      together[*buffer] = false;
  }
  if (any == 0) return;
  auto shipment = std::make_unique<Shipment>(layout_);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    entries_[i].version = layout_.parameters[i].parameter->version;
    entries_[i].there |= missing[i];
    if ((missing[i] & kValues) != 0) {
      const auto& buffer = layout_.parameters[i].buffer;
      load_values(i, buffer && together[*buffer], *shipment);
    }
    for (const Contents bit : {kForwardCodes, kBackwardCodes})
      if ((missing[i] & bit) != 0) load_codes(i, bit, *shipment);
  }
  columns_.share();  // those that a cast of this gather needs
  const std::int64_t processes = shared_->processes();
  for (Parcel* parcel : shipment->parcels()) parcel->pack(allocate({parcel->elements() * processes}, parcel->dtype()));
  for (const auto& fill : std::exchange(shipment->fills, {})) fill();

  shared_->follow();
  {
    const StreamGuard guard(shared_->stream);
    shared_->for_each_group([&](ProcessGroup& group) {
      for (const auto& [of, own, whole, label] : shipment->large)
        if (of == &group) gathering_.push_back(group.all_gather(own, whole, label));
      if (&group != shared_->shard.get()) return;
      for (const Parcel* parcel : shipment->parcels()) gathering_.push_back(parcel->gather(group, name_));
    });
    shipment->large.clear();
  }
  columns_.share();  // those that the casts have found for the backward pass
  travelling_.push_back(std::move(shipment));
}

void UnitWeights::load_values(std::size_t parameter, bool together, Shipment& shipment) {
  const UnitParameter& from = layout_.parameters[parameter];
  const Tensor& own = from.parameter->padded;
  const Tensor& whole = entries_[parameter].values = allocate(from.padded_shape, own.dtype());
  if (!from.small()) {
    shipment.large.push_back({from.group, own, whole, from.parameter->name});
    return;
  }
  Parcel& parcel = shipment.values[*from.buffer];
  const Tensor target = whole.reinterpret(parcel.dtype());
  if (together) return parcel.add_in_place(target, from.place, layout_.small[*from.buffer], shared_->processes());
  const std::size_t piece = parcel.add(target, shared_->processes());
  shipment.fills.emplace_back([own, &parcel, piece, rank = shared_->shard->rank()] {
    parcel.own(piece, rank).copy_from(own.view({own.numel()}).reinterpret(parcel.dtype()));
  });
}

void UnitWeights::load_codes(std::size_t parameter, Contents bit, Shipment& shipment) {
  const UnitParameter& from = layout_.parameters[parameter];
  Entry& entry = entries_[parameter];
  const autograd::WeightFormat& form = form_of(entry, bit);
  Codes& codes = entry.codes[codes_index(bit)];
  const std::int64_t processes = shared_->processes();
  const Shape& own_shape = from.parameter->padded.shape();
  const int rank = shared_->shard->rank();

  codes.payload = allocate(from.padded_shape, payload_dtype(form.element));
  std::function<Tensor()> payload = [own = codes.payload.narrow(0, rank * own_shape[0], own_shape[0])] { return own; };
  if (static_cast<std::size_t>(own_shape.numel()) < kSmallBytes) {
    const std::size_t piece = shipment.codes.add(codes.payload.reinterpret(DType::u8), processes);
    payload = [&parcel = shipment.codes, piece, rank, own_shape, dtype = codes.payload.dtype()] {
      return parcel.own(piece, rank).reinterpret(dtype).view(own_shape);
    };
  } else {
    shipment.large.push_back({from.group, payload(), codes.payload, from.parameter->name});
  }
  std::function<Tensor()> scales;
  if (form.granularity == Granularity::row) {
    const MemoryScope scope(shared_->weights.category());
    codes.scales = Tensor::empty({from.padded_shape[0], 1}, DType::f32, shared_->device);
    const std::size_t piece = shipment.scales.add(codes.scales, processes);
    scales = [&parcel = shipment.scales, piece, rank, rows = own_shape[0]] {
      return parcel.own(piece, rank).view({rows, 1});
    };
  } else if (form.granularity == Granularity::column) {
    if (!columns_.current(parameter)) columns_.find(parameter);
    scales = [this, parameter, &codes, &form] { return codes.scales = columns_.scale(parameter, form); };
  } else {
    scales = [this, &from, &codes, &form] { return codes.scales = shared_->maxima->scale(*from.parameter, form); };
  }
  shipment.fills.emplace_back(
      [this, parameter, bit, payload, scales] { cast_own_rows(parameter, bit, payload(), scales()); });
}

void UnitWeights::cast_own_rows(std::size_t parameter, Contents bit, const Tensor& payload, const Tensor& scales) {
  const Entry& entry = entries_[parameter];
  const autograd::WeightFormat& form = form_of(entry, bit);
  const Tensor& rows = layout_.parameters[parameter].parameter->padded;
  const QuantTensor out({.element = form.element, .granularity = form.granularity}, rows.shape(), rows.dtype(), payload,
                        scales);
  if (form.granularity != Granularity::row) {
    float8_cast_slot(shared_->device.type, {rows, out, {}});
    return;
  }
  // The backward pass will want the columns' maxima: they are found on the way.
  const bool finds_columns =
      entry.forms.backward && entry.forms.backward->granularity == Granularity::column && !columns_.current(parameter);
  float8_rows_slot(shared_->device.type,
                   {rows, out, form.power_of_two_scale, finds_columns ? columns_.begin(parameter) : Tensor()});
}

void UnitWeights::end_gather() {
  shared_->clock->wait(gathering_);
  for (const auto& shipment : std::exchange(travelling_, {}))
    for (Parcel* parcel : shipment->parcels()) {
      Tensor buffer = parcel->unpack(shared_->processes());
      give_back(buffer);
    }
}

void UnitWeights::free() {
  for (std::size_t i = 0; i < entries_.size(); ++i) drop(i, entries_[i].there);
}

void UnitWeights::need(std::size_t parameter, Contents bit) {
  entries_[parameter].used |= bit;
  if ((entries_[parameter].there & bit) == 0) {
    std::vector<Contents> contents(entries_.size());
    contents[parameter] = bit;
    bring(contents);
  }
  end_gather();
  ++users_;
}

Tensor UnitWeights::acquire(std::size_t parameter) {
  if (users_ == 0) gather(part_);
  need(parameter, kValues);
  return entries_[parameter].values.narrow(0, 0, layout_.parameters[parameter].shape[0]);
}

QuantTensor UnitWeights::acquire_quantized(std::size_t parameter, const autograd::WeightFormat& form) {
  if (users_ == 0) gather(part_);
  const Entry& entry = entries_[parameter];
  const Contents bit = bit_of(entry.forms, form);
  if (bit == 0) return {};
  need(parameter, bit);
  const nn::Parameter& of = *layout_.parameters[parameter].parameter;
  const Codes& codes = entry.codes[codes_index(bit)];
  const std::int64_t rows = of.global_shape[0];
  return {{.element = form.element, .granularity = form.granularity},
          of.global_shape,
          of.padded.dtype(),
          codes.payload.narrow(0, 0, rows),
          form.granularity == Granularity::row ? codes.scales.narrow(0, 0, rows) : codes.scales};
}

void UnitWeights::release() noexcept {
  if (--users_ == 0 && frees_itself_) free();
}

}  // namespace quench::distributed
