#include "distributed/gloo/algorithms.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "distributed/gloo/reduce.h"

namespace quench::distributed {
namespace {

constexpr std::size_t kSegmentBytes = std::size_t{1}
                                      << 20;  // segment of one rank's part, received and reduced at a time
constexpr std::size_t kSmallBytes = std::size_t{16} << 10;  // below: all-gathered and reduced by every rank
constexpr std::uint64_t kComparisonSlot = 0;
constexpr std::uint64_t kReduceSlot = 1;  // plus one per segment
constexpr std::uint64_t kGatherSlot = kSlotsPerOperation - 1;

std::byte* bytes_of(const Tensor& tensor) {
  return static_cast<std::byte*>(tensor.raw_data());
}

// Operation as sent to other ranks: plain bytes, as all ranks run the same program and architecture.
struct Announcement {
  std::uint64_t sequence;
  std::uint8_t kind, op, dtype, unused;
  std::int32_t root;
  std::int64_t elements;
  std::int64_t to_you;
  std::int64_t from_you;
  std::array<char, 88> label;
};
static_assert(sizeof(Announcement) == 128);

Announcement announce(const Collective& collective, int to) {
  Announcement result{};
  const auto peer = static_cast<std::size_t>(to);
  const bool parts = collective.kind == CollectiveKind::all_to_all;
  result.sequence = collective.sequence;
  result.kind = static_cast<std::uint8_t>(collective.kind);
  result.op = static_cast<std::uint8_t>(collective.op);
  result.dtype = collective.payload().defined() ? static_cast<std::uint8_t>(collective.payload().dtype()) : 0;
  result.root = collective.peer;
  // all_to_all sizes are equal between sender and receiver of a part only.
  result.elements = parts || !collective.payload().defined() ? 0 : collective.payload().numel();
  result.to_you = parts ? collective.send_counts[peer] : 0;
  result.from_you = parts ? collective.receive_counts[peer] : 0;
  std::copy_n(collective.label.data(), std::min(collective.label.size(), result.label.size()), result.label.data());
  return result;
}

bool fits(const Announcement& mine, const Announcement& theirs) {
  return mine.kind == theirs.kind && mine.op == theirs.op && mine.dtype == theirs.dtype && mine.root == theirs.root &&
         mine.elements == theirs.elements && mine.to_you == theirs.from_you && mine.from_you == theirs.to_you;
}

std::string describe(const Announcement& said) {
  const std::string label(said.label.data(), ::strnlen(said.label.data(), said.label.size()));
  const bool parts = static_cast<CollectiveKind>(said.kind) == CollectiveKind::all_to_all;
  return describe_collective(static_cast<CollectiveKind>(said.kind), static_cast<ReduceOp>(said.op), said.sequence,
                             label, parts ? said.to_you : said.elements, static_cast<DType>(said.dtype));
}

// All-gather of parts of `stride` bytes, clipped to `total`, at parts + rank * stride; the local part is in place.
void gather(Exchange& exchange, std::byte* parts, std::size_t stride, std::size_t total, std::uint64_t slot) {
  const auto part_bytes = [&](int rank) {
    const std::size_t begin = std::min(total, static_cast<std::size_t>(rank) * stride);
    return std::min(stride, total - begin);
  };
  Transfers transfers(exchange, parts, total);
  const int own = exchange.rank();
  for (int step = 1; step < exchange.size(); ++step) {
    const int from = (own + step) % exchange.size();
    transfers.receive(from, slot, static_cast<std::size_t>(from) * stride, part_bytes(from));
  }
  for (int step = 1; step < exchange.size(); ++step)
    transfers.send((own + step) % exchange.size(), slot, static_cast<std::size_t>(own) * stride, part_bytes(own));
  transfers.wait_receives();
  transfers.wait_sends();
}

// Double buffer: receive overlaps reduction.
struct Stage {
  std::vector<std::byte> bytes;
  std::unique_ptr<Transfers> transfers;
};

// Rank r's part of `input`: elements [r * stride, (r + 1) * stride), clipped; reduced into `output`.
void reduce_parts(Exchange& exchange, const Collective& collective, std::int64_t stride, std::byte* output,
                  std::uint64_t slot) {
  const DType dtype = collective.input.dtype();
  const std::int64_t width = byte_size(dtype), total = collective.input.numel();
  const std::int64_t per_segment = static_cast<std::int64_t>(kSegmentBytes) / width;
  const int own = exchange.rank(), size = exchange.size();
  const auto begin_of = [&](int rank) { return std::min(total, rank * stride); };
  const auto length_of = [&](int rank) { return std::min(stride, total - begin_of(rank)); };
  std::byte* input = bytes_of(collective.input);
  Transfers sends(exchange, input, static_cast<std::size_t>(total * width));
  const std::int64_t segments = (stride + per_segment - 1) / per_segment;
  QUENCH_CHECK(static_cast<std::uint64_t>(segments) < kSlotsPerOperation - 2, "reduction of {} elements is too large",
               total);
  const auto segment_length = [&](int rank, std::int64_t segment) {
    return std::clamp<std::int64_t>(length_of(rank) - segment * per_segment, 0, per_segment);
  };
  std::array<Stage, 2> stages;
  for (Stage& stage : stages) {
    stage.bytes.resize(static_cast<std::size_t>(size * std::min(per_segment, stride) * width));
    stage.transfers = std::make_unique<Transfers>(exchange, stage.bytes.data(), stage.bytes.size());
  }
  const std::int64_t place = std::min(per_segment, stride) * width;
  const auto begin_segment = [&](std::int64_t segment) {
    for (int step = 1; step < size; ++step) {
      const int from = (own + step) % size;
      stages[segment % 2].transfers->receive(from, slot + static_cast<std::uint64_t>(segment),
                                             static_cast<std::size_t>(from * place),
                                             static_cast<std::size_t>(segment_length(own, segment) * width));
    }
    for (int step = 1; step < size; ++step) {
      const int to = (own + size - step) % size;
      sends.send(to, slot + static_cast<std::uint64_t>(segment),
                 static_cast<std::size_t>((begin_of(to) + segment * per_segment) * width),
                 static_cast<std::size_t>(segment_length(to, segment) * width));
    }
  };
  if (segments > 0) begin_segment(0);
  std::vector<const void*> sources(static_cast<std::size_t>(size));
  for (std::int64_t segment = 0; segment < segments; ++segment) {
    if (segment + 1 < segments) begin_segment(segment + 1);
    Stage& stage = stages[segment % 2];
    stage.transfers->wait_receives();
    const std::int64_t at = segment * per_segment;
    for (int rank = 0; rank < size; ++rank)
      sources[static_cast<std::size_t>(rank)] =
          rank == own ? input + (begin_of(own) + at) * width : stage.bytes.data() + rank * place;
    reduce_in_order(dtype, collective.op, sources, output + at * width, segment_length(own, segment));
  }
  sends.wait_sends();
}

void all_reduce(Exchange& exchange, const Collective& collective, std::uint64_t base) {
  const Tensor& tensor = collective.input;
  const std::int64_t width = byte_size(tensor.dtype()), total = tensor.numel();
  const int size = exchange.size();
  if (tensor.nbytes() <= kSmallBytes) {
    std::vector<std::byte> parts(tensor.nbytes() * static_cast<std::size_t>(size));
    std::vector<const void*> sources;
    for (int rank = 0; rank < size; ++rank)
      sources.push_back(parts.data() + static_cast<std::size_t>(rank) * tensor.nbytes());
    std::copy_n(bytes_of(tensor), tensor.nbytes(),
                parts.data() + static_cast<std::size_t>(exchange.rank()) * tensor.nbytes());
    gather(exchange, parts.data(), tensor.nbytes(), parts.size(), base + kGatherSlot);
    reduce_in_order(tensor.dtype(), collective.op, sources, tensor.raw_data(), total);
    return;
  }
  const std::int64_t stride = (total + size - 1) / size;
  std::byte* own = bytes_of(tensor) + std::min(total, exchange.rank() * stride) * width;
  reduce_parts(exchange, collective, stride, own, base + kReduceSlot);
  gather(exchange, bytes_of(tensor), static_cast<std::size_t>(stride * width), tensor.nbytes(), base + kGatherSlot);
}

void all_gather(Exchange& exchange, const Collective& collective, std::uint64_t base) {
  const std::size_t part = collective.input.nbytes();
  std::byte* whole = bytes_of(collective.output);
  std::byte* own = whole + static_cast<std::size_t>(exchange.rank()) * part;
  if (own != bytes_of(collective.input)) std::copy_n(bytes_of(collective.input), part, own);
  gather(exchange, whole, part, collective.output.nbytes(), base + kGatherSlot);
}

void all_to_all(Exchange& exchange, const Collective& collective, std::uint64_t base) {
  const int own = exchange.rank(), size = exchange.size();
  const auto width = static_cast<std::size_t>(byte_size(collective.input.dtype()));
  const auto places = [&](const std::vector<std::int64_t>& counts) {
    std::vector<std::size_t> result(1, 0);
    for (const std::int64_t count : counts) result.push_back(result.back() + static_cast<std::size_t>(count) * width);
    return result;
  };
  const std::vector<std::size_t> from = places(collective.send_counts), to = places(collective.receive_counts);
  Transfers sends(exchange, collective.input.raw_data(), collective.input.nbytes());
  Transfers receives(exchange, collective.output.raw_data(), collective.output.nbytes());
  for (int step = 1; step < size; ++step) {
    const int peer = (own + step) % size;
    const auto i = static_cast<std::size_t>(peer);
    receives.receive(peer, base + kGatherSlot, to[i], to[i + 1] - to[i]);
  }
  for (int step = 1; step < size; ++step) {
    const int peer = (own + step) % size;
    const auto i = static_cast<std::size_t>(peer);
    sends.send(peer, base + kGatherSlot, from[i], from[i + 1] - from[i]);
  }
  const auto i = static_cast<std::size_t>(own);
  std::copy_n(bytes_of(collective.input) + from[i], from[i + 1] - from[i], bytes_of(collective.output) + to[i]);
  receives.wait_receives();
  sends.wait_sends();
}

void broadcast(Exchange& exchange, const Collective& collective, std::uint64_t base) {
  Transfers transfers(exchange, collective.input.raw_data(), collective.input.nbytes());
  if (exchange.rank() == collective.peer) {
    for (int rank = 0; rank < exchange.size(); ++rank)
      if (rank != collective.peer) transfers.send(rank, base + kGatherSlot, 0, collective.input.nbytes());
    transfers.wait_sends();
  } else {
    transfers.receive(collective.peer, base + kGatherSlot, 0, collective.input.nbytes());
    transfers.wait_receives();
  }
}

void pass(Exchange& exchange, const Collective& collective, std::uint64_t base) {
  const Tensor& tensor = collective.payload();
  Transfers transfers(exchange, tensor.raw_data(), tensor.nbytes());
  if (collective.kind == CollectiveKind::send) {
    transfers.send(collective.peer, base, 0, tensor.nbytes());
    transfers.wait_sends();
  } else {
    transfers.receive(collective.peer, base, 0, tensor.nbytes());
    transfers.wait_receives();
  }
}

}  // namespace

void compare_collectives(Exchange& exchange, const Collective& collective, std::uint64_t base) {
  const int own = exchange.rank(), size = exchange.size();
  std::vector<Announcement> mine, theirs(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) mine.push_back(announce(collective, rank));
  Transfers sends(exchange, mine.data(), mine.size() * sizeof(Announcement));
  std::vector<std::unique_ptr<Transfers>> receives;  // one per rank, to name a missing one
  for (int step = 1; step < size; ++step) {
    const int rank = (own + step) % size;
    receives.push_back(
        std::make_unique<Transfers>(exchange, &theirs[static_cast<std::size_t>(rank)], sizeof(Announcement)));
    receives.back()->receive(rank, base + kComparisonSlot, 0, sizeof(Announcement));
  }
  for (int step = 1; step < size; ++step) {
    const int rank = (own + step) % size;
    sends.send(rank, base + kComparisonSlot, static_cast<std::size_t>(rank) * sizeof(Announcement),
               sizeof(Announcement));
  }
  for (const auto& receive : receives) receive->wait_receives();
  sends.wait_sends();
  for (int rank = 0; rank < size; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    if (rank == own || fits(mine[i], theirs[i])) continue;
    QUENCH_FAIL(ErrorCode::failed, "the ranks do different things: rank {} is at {}, this one (rank {}) at {}", rank,
                describe(theirs[i]), own, describe(mine[i]));
  }
}

void run_collective(Exchange& exchange, const Collective& collective, std::uint64_t base) {
  switch (collective.kind) {
    case CollectiveKind::all_reduce: return all_reduce(exchange, collective, base);
    case CollectiveKind::all_gather: return all_gather(exchange, collective, base);
    case CollectiveKind::reduce_scatter:
      return reduce_parts(exchange, collective, collective.output.numel(), bytes_of(collective.output),
                          base + kReduceSlot);
    case CollectiveKind::all_to_all: return all_to_all(exchange, collective, base);
    case CollectiveKind::broadcast: return broadcast(exchange, collective, base);
    case CollectiveKind::send:
    case CollectiveKind::receive: return pass(exchange, collective, base);
    case CollectiveKind::barrier: return compare_collectives(exchange, collective, base);
  }
}

}  // namespace quench::distributed
