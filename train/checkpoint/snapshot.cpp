#include "train/checkpoint/snapshot.h"

#include <algorithm>
#include <system_error>

#include "core/system/log.h"

namespace quench {
namespace {

constexpr std::int64_t kAlignment = 64;
// Pinning blocks other driver calls: about 50 ms a block.
constexpr std::int64_t kBlockBytes = std::int64_t{128} << 20;

std::int64_t padded(std::size_t bytes) {
  return (static_cast<std::int64_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
}

Device device_of(std::span<const CheckpointTensor> tensors) {
  for (const CheckpointTensor& tensor : tensors)
    if (tensor.data.device().type == DeviceType::cuda) return tensor.data.device();
  return {};
}

// Next fit: a tensor that does not fit opens a new block.
class Layout {
 public:
  bool opens_block(std::int64_t bytes) {
    const bool opens = used_ < 0 || used_ + bytes > std::max(kBlockBytes, bytes);
    offset_ = opens ? 0 : used_;
    used_ = offset_ + bytes;
    return opens;
  }
  [[nodiscard]] std::int64_t offset() const noexcept { return offset_; }  // offset of the last tensor in its block

 private:
  std::int64_t used_ = -1;  // bytes of the last block; -1: none
  std::int64_t offset_ = 0;
};

}  // namespace

std::int64_t snapshot_bytes(std::span<const CheckpointTensor> tensors) {
  std::int64_t total = 0;
  for (const CheckpointTensor& tensor : tensors) total += padded(tensor.data.nbytes());
  return total;
}

Snapshot::~Snapshot() {
  if (maker_.joinable()) maker_.join();
  if (!link_) return;
  Backend& owner = backend(link_->device.type);
  try {
    owner.synchronize(copied_);
  } catch (const Error&) {  // reported by the next device call
  }
  owner.destroy_event(copied_);
  owner.destroy_stream(*link_);
}

std::vector<std::int64_t> Snapshot::blocks_for(std::span<const CheckpointTensor> tensors) {
  std::vector<std::int64_t> sizes;
  Layout layout;
  for (const CheckpointTensor& tensor : tensors) {
    const std::int64_t bytes = padded(tensor.data.nbytes());
    if (layout.opens_block(bytes)) sizes.push_back(0);
    sizes.back() = layout.offset() + bytes;
  }
  return sizes;
}

void Snapshot::make_room(const std::vector<std::int64_t>& sizes, Device device) {
  const auto fits = [this](std::size_t i, std::int64_t size) {
    return i < blocks_.size() && blocks_[i].defined() && blocks_[i].numel() >= size;
  };
  const MemoryScope scope(MemoryCategory::other);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (fits(i, sizes[i])) continue;
    if (i >= blocks_.size()) blocks_.resize(i + 1);
    capacity_ -= blocks_[i].defined() ? blocks_[i].numel() : 0;
    blocks_[i] = Tensor();
    blocks_[i] = Tensor::empty_pinned({sizes[i]}, DType::u8, device);
    capacity_ += sizes[i];
  }
}

void Snapshot::join() {
  if (maker_.joinable()) maker_.join();
}

void Snapshot::reserve(std::span<const CheckpointTensor> tensors) {
  join();
  const Device device = device_of(tensors);
  if (device.is_cpu()) return;
  try {
    maker_ = std::thread([this, sizes = blocks_for(tensors), device] {
      try {
        make_room(sizes, device);
      } catch (const std::exception& error) {  // the save retries and reports
        QUENCH_LOG_WARN("host memory for checkpoints: {}", error.what());
      }
    });
  } catch (const std::system_error&) {  // no thread: the first save allocates
  }
}

std::span<const CheckpointTensor> Snapshot::take(std::span<const CheckpointTensor> tensors) {
  join();
  wait();
  sources_.clear();
  copies_.clear();
  const Device device = device_of(tensors);
  make_room(blocks_for(tensors), device);
  if (device.type == DeviceType::cuda) {
    Backend& owner = backend(device.type);
    if (!link_) {
      link_ = owner.create_stream(device);
      copied_ = owner.create_event(device);
    }
    owner.record(copied_, current_stream(device));
    owner.wait(*link_, copied_);
  }
  copies_.reserve(tensors.size());
  Layout layout;
  std::size_t block = 0;
  for (const CheckpointTensor& tensor : tensors) {
    QUENCH_CHECK(tensor.data.defined() && tensor.data.is_contiguous(),
                 "checkpoint tensor '{}' ({}) must be defined and contiguous", tensor.name, tensor.data.describe());
    if (layout.opens_block(padded(tensor.data.nbytes())) && !copies_.empty()) ++block;
    auto* place = static_cast<std::byte*>(blocks_[block].raw_data()) + layout.offset();
    Tensor copy = Tensor::from_host(place, tensor.data.shape(), tensor.data.dtype());
    if (tensor.data.device().type != DeviceType::cuda)
      copy.copy_from(tensor.data);
    else if (tensor.data.nbytes() > 0) {
      backend(device.type).copy(place, Device{}, tensor.data.raw_data(), device, tensor.data.nbytes(), *link_);
      sources_.push_back(tensor.data);
    }
    copies_.push_back({tensor.name, tensor.global_shape, tensor.slice, std::move(copy), tensor.columns});
  }
  if (link_) backend(device.type).record(copied_, *link_);
  return copies_;
}

void Snapshot::before_change() {
  if (sources_.empty()) return;
  backend(link_->device.type).wait(current_stream(link_->device), copied_);
  sources_.clear();
}

void Snapshot::wait() const {
  if (link_) backend(link_->device.type).synchronize(copied_);
}

}  // namespace quench
