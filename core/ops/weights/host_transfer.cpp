#include "core/ops/weights/host_transfer.h"

#include <algorithm>
#include <array>

#include "core/ops/elementwise.h"

namespace quench {
namespace {

constexpr std::int64_t kPartBytes = std::int64_t{64} << 20;

struct Part {
  Tensor device, host;
  Event copied;
};

}  // namespace

void read_by_parts(const Tensor& source, const std::function<void(std::span<const std::byte>)>& consume) {
  if (source.device().is_cpu()) return consume({static_cast<const std::byte*>(source.raw_data()), source.nbytes()});
  const Device device = source.device();
  Backend& owner = backend(device.type);
  const Stream stream = current_stream(device);
  const Tensor flat = source.view({source.numel()});
  const std::int64_t step = std::max<std::int64_t>(1, kPartBytes / byte_size(source.dtype()));
  std::array<Part, 2> parts;
  for (Part& part : parts) part.copied = owner.create_event(device);
  const auto begin = [&](std::int64_t first) {
    Part& part = parts[static_cast<std::size_t>(first / step % 2)];
    part.device = flat.narrow(0, first, std::min(step, flat.numel() - first));
    part.host = Tensor::empty_pinned(part.device.shape(), source.dtype(), device);
    owner.copy(part.host.raw_data(), Device{}, part.device.raw_data(), device, part.device.nbytes(), stream);
    owner.record(part.copied, stream);
  };
  const auto finish = [&] {
    for (const Part& part : parts) owner.destroy_event(part.copied);
  };
  try {
    if (flat.numel() > 0) begin(0);
    for (std::int64_t first = 0; first < flat.numel(); first += step) {
      if (first + step < flat.numel()) begin(first + step);
      const Part& part = parts[static_cast<std::size_t>(first / step % 2)];
      owner.synchronize(part.copied);
      consume({static_cast<const std::byte*>(part.host.raw_data()), part.host.nbytes()});
    }
  } catch (...) {
    finish();
    throw;
  }
  finish();
}

void write_by_rows(const Tensor& destination, DType dtype,
                   const std::function<void(const Tensor& rows, std::int64_t first)>& produce) {
  if (destination.numel() == 0) return;
  const Device device = destination.device();
  if (device.is_cpu() && dtype == destination.dtype()) return produce(destination, 0);
  const std::int64_t rows = destination.size(0), row_bytes = destination.numel() / rows * byte_size(dtype);
  const std::int64_t step = std::clamp<std::int64_t>(kPartBytes / row_bytes, 1, rows);
  for (std::int64_t first = 0; first < rows; first += step) {
    const Tensor part = destination.narrow(0, first, std::min(step, rows - first));
    const Tensor values = Tensor::empty_pinned(part.shape(), dtype, device);
    produce(values, first);
    if (dtype == destination.dtype())
      Tensor(part).copy_from(values);
    else
      cast({values.to(device), part});
  }
}

}  // namespace quench
