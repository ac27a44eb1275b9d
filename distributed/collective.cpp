#include "distributed/collective.h"

namespace quench::distributed {

std::string_view to_string(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::max: return "max";
    case ReduceOp::min: return "min";
  }
  return "unknown";
}

std::string_view to_string(CollectiveKind kind) noexcept {
  switch (kind) {
    case CollectiveKind::all_reduce: return "all_reduce";
    case CollectiveKind::all_gather: return "all_gather";
    case CollectiveKind::reduce_scatter: return "reduce_scatter";
    case CollectiveKind::all_to_all: return "all_to_all";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::send: return "send";
    case CollectiveKind::receive: return "recv";
    case CollectiveKind::barrier: return "barrier";
  }
  return "unknown";
}

std::string describe_collective(CollectiveKind kind, ReduceOp op, std::uint64_t sequence, std::string_view label,
                                std::int64_t elements, DType dtype) {
  std::string text = fmt::format("{} #{}", to_string(kind), sequence);
  if (!label.empty()) text += fmt::format(" of '{}'", label);
  if (kind == CollectiveKind::barrier) return text;
  const bool reduces = kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter;
  return text + fmt::format(" ({}{}{} {})", reduces ? to_string(op) : "", reduces ? ", " : "", elements,
                            quench::to_string(dtype));
}

std::string Collective::describe() const {
  const bool moves = payload().defined();
  return describe_collective(kind, op, sequence, label, moves ? payload().numel() : 0,
                             moves ? payload().dtype() : DType::u8);
}

std::int64_t wire_bytes(const Collective& collective, int rank, int size) {
  if (!collective.payload().defined() || size == 1) return 0;
  const auto bytes = static_cast<std::int64_t>(collective.payload().nbytes());
  switch (collective.kind) {
    case CollectiveKind::all_reduce: return 2 * bytes * (size - 1) / size;
    case CollectiveKind::all_gather: return bytes * (size - 1);
    case CollectiveKind::reduce_scatter: return bytes / size * (size - 1);
    case CollectiveKind::broadcast: return rank == collective.peer ? bytes : 0;
    case CollectiveKind::send: return bytes;
    case CollectiveKind::receive:
    case CollectiveKind::barrier: return 0;
    case CollectiveKind::all_to_all: {
      std::int64_t elements = 0;
      for (int i = 0; i < size; ++i)
        if (i != rank) elements += collective.send_counts[static_cast<std::size_t>(i)];
      return elements * bit_width(collective.input.dtype()) / 8;
    }
  }
  return 0;
}

}  // namespace quench::distributed
