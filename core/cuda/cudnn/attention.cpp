#include "core/cuda/cudnn/attention.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <optional>
#include <vector>

#include "core/cuda/common/cuda_error.h"
#include "core/cuda/common/device_table.h"
#include "core/cuda/cudnn/attention_graph.h"
#include "core/cuda/cudnn/attention_parts.h"
#include "core/device/determinism.h"

namespace quench::cuda {
namespace {

using Sequences = std::span<const SequenceRange>;

// cuDNN's deterministic backward stores all score gradients: sequences run in batches below this limit, larger ones on
// tiled kernels.
constexpr std::int64_t kDeterministicBytes = std::int64_t{8} << 30;

// Rounded sizes: few plans serve a run.
std::int64_t rounded_length(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 128))));
}
std::int64_t rounded_count(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
}
std::int64_t rounded_rows(std::int64_t n) {  // at most 1/8 more
  const std::int64_t step = std::max<std::int64_t>(1024, rounded_count(n) / 16);
  return (n + step - 1) / step * step;
}

HeadStrides strides_of(const Tensor& t) {
  return {t.stride(0), t.stride(1)};
}

struct Operand {
  AttentionOperand id;
  const Tensor* tensor;
  bool own = false;  // holds the rows of its uniform sequence alone
  [[nodiscard]] bool of_keys() const { return id == kK || id == kV || id == kDk || id == kDv; }
  // In elements; a packed lse row holds all heads.
  [[nodiscard]] std::int64_t row() const { return id == kLse ? tensor->size(0) : tensor->stride(0); }
  [[nodiscard]] std::size_t width() const { return id == kLse ? sizeof(float) : sizeof(bfloat16); }
};

bool is_aligned(const Operand& x, const void* address) {
  constexpr std::int64_t kStep = 16 / sizeof(bfloat16);
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0 &&
         (x.id == kLse || (x.tensor->stride(0) % kStep == 0 && x.tensor->stride(1) % kStep == 0));
}

// Lengths and offsets of packed sequences.
class PackedTable {
 public:
  PackedTable(Sequences sequences, const AttentionGraphKey& key) : sequences_(sequences), key_(key) {
    places_.push_back({kQueryLengths, add_lengths(&SequenceRange::q_length)});
    places_.push_back({kKeyLengths, add_lengths(&SequenceRange::k_length)});
  }

  void add(const Operand& x) {
    const auto same = std::find_if(offsets_.begin(), offsets_.end(),
                                   [&](const Offsets& o) { return o.of_keys == x.of_keys() && o.row == x.row(); });
    if (same != offsets_.end()) {
      places_.push_back({kOffsets + x.id, same->place});
      return;
    }
    const std::size_t place = begin_part();
    std::int64_t end = 0;
    for (const SequenceRange& s : sequences_) {
      const std::int64_t begin = x.of_keys() ? s.k_begin : s.q_begin;
      end = begin + (x.of_keys() ? s.k_length : s.q_length);
      append(begin * x.row());
    }
    for (auto i = static_cast<std::int64_t>(sequences_.size()); i <= key_.batch; ++i) append(end * x.row());
    offsets_.push_back({x.of_keys(), x.row(), place});
    places_.push_back({kOffsets + x.id, place});
  }

  // Owns the device copy.
  Tensor place(Stream stream, std::unordered_map<std::int64_t, void*>& addresses) const {
    const Tensor table = device_table(words_, stream);
    for (const auto& [id, at] : places_) addresses[id] = table.data<std::int32_t>() + at;
    return table;
  }

 private:
  struct Offsets {
    bool of_keys;
    std::int64_t row;
    std::size_t place;
  };

  std::size_t begin_part() {
    words_.resize((words_.size() + 3) / 4 * 4);
    return words_.size();
  }
  void append(std::int64_t value) {
    words_.push_back(static_cast<std::int32_t>(value));
    if (key_.wide_offsets) words_.push_back(static_cast<std::int32_t>(value >> 32));
  }
  // Padded with empty sequences.
  std::size_t add_lengths(std::int64_t SequenceRange::*length) {
    const std::size_t place = begin_part();
    for (const SequenceRange& s : sequences_) words_.push_back(static_cast<std::int32_t>(s.*length));
    words_.resize(place + static_cast<std::size_t>(key_.batch));
    return place;
  }

  Sequences sequences_;
  const AttentionGraphKey& key_;
  std::vector<std::int32_t> words_;
  std::vector<Offsets> offsets_;
  std::vector<std::pair<std::int64_t, std::size_t>> places_;
};

AttentionGraphKey key_of(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, Sequences sequences,
                         AttentionLayout layout, bool causal, std::int64_t window, float scale) {
  AttentionGraphKey key{.device = q.device().index,
                        .packed = layout == AttentionLayout::packed,
                        .causal = causal,
                        .window = window,
                        .scale = scale,
                        .heads = q.size(1),
                        .kv_heads = k.size(1),
                        .dim = q.size(2),
                        .batch = static_cast<std::int64_t>(sequences.size()),
                        .q = strides_of(q),
                        .k = strides_of(k),
                        .v = strides_of(v),
                        .out = strides_of(out)};
  for (const SequenceRange& s : sequences) {
    key.queries = std::max(key.queries, s.q_length);
    key.keys = std::max(key.keys, s.k_length);
    key.bottom_right |= causal && s.q_length != s.k_length;
  }
  if (key.packed) {
    key.batch = rounded_count(key.batch);
    key.queries = rounded_length(key.queries);
    key.keys = rounded_length(key.keys);
  }
  return key;
}

// f32 rows of the backward: the row count, or that of the rounded sequences if smaller.
void choose_workspace(AttentionGraphKey& key, const Tensor& q, const Tensor& k) {
  if (!key.packed) return;
  const std::int64_t query_rows = rounded_rows(q.size(0)), key_rows = rounded_rows(k.size(0));
  const std::int64_t group = key.heads / key.kv_heads;
  if (query_rows * key.dq.row < key.batch * key.queries * key.heads * key.dim) key.total_queries = query_rows;
  if (key_rows * (key.dk.row + key.dv.row) * group * 2 < 2 * key.batch * key.keys * key.heads * key.dim)
    key.total_keys = key_rows;
}

bool run(AttentionGraphKey key, Sequences sequences, std::initializer_list<Operand> operands, std::string& reason) {
  const Stream stream = current_stream(operands.begin()->tensor->device());
  std::unordered_map<std::int64_t, void*> addresses;
  for (const Operand& x : operands) {
    const SequenceRange& first = sequences[0];
    // Packed offsets count from the tensor's start; uniform graph tensors start at the first sequence.
    const std::int64_t row = key.packed || x.own ? 0 : x.of_keys() ? first.k_begin : first.q_begin;
    void* address = static_cast<std::byte*>(x.tensor->raw_data()) + static_cast<std::size_t>(row * x.row()) * x.width();
    if (!is_aligned(x, address)) {
      reason = "an operand is not aligned to 16 bytes";
      return false;
    }
    addresses[x.id] = address;
    // Gradients summed over query heads: offsets times the group size.
    const std::int64_t rows = x.id == kLse ? x.tensor->size(1) : x.tensor->size(0);
    key.wide_offsets |= key.packed && rows * x.row() * (key.heads / key.kv_heads) > INT32_MAX;
  }
  Tensor table;
  if (key.packed) {
    PackedTable packed(sequences, key);
    for (const Operand& x : operands) packed.add(x);
    table = packed.place(stream, addresses);
  }
  const DeviceGuard guard(stream.device);
  std::optional<CudnnSession> session;
  try {
    session.emplace(stream);
  } catch (const Error& error) {  // such as missing sub-libraries
    reason = error.what();
    return false;
  }
  const auto graph = AttentionGraph::get(key, *session);
  if (!graph->refused().empty()) {
    reason = graph->refused();
    return false;
  }
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor workspace = Tensor::empty({graph->workspace_bytes()}, DType::u8, stream.device);
  return graph->run(*session, addresses, workspace.raw_data(), reason);
}

// cuDNN's causal backward of fewer queries than keys takes a third longer than one without a mask over the keys before
// the queries and one over the square at the end. Lengths of whole steps recur: a plan serves a pair of lengths.
constexpr std::int64_t kSplitStep = 1024;
bool splits(const SequenceRange& s) {
  return s.q_length > 0 && s.q_length < s.k_length && s.q_length % kSplitStep == 0 && s.k_length % kSplitStep == 0;
}
SequenceRange square_of(const SequenceRange& s) {
  return {s.q_begin, s.q_length, s.k_begin + s.k_length - s.q_length, s.q_length};
}
SequenceRange rectangle_of(const SequenceRange& s) {
  return {s.q_begin, s.q_length, s.k_begin, s.k_length - s.q_length};
}

class Backward {
 public:
  Backward(const AttentionBackwardArgs& args, AttentionLayout layout, std::string& reason)
      : args_(args), layout_(layout), reason_(reason) {}

  // All of `sequences` in one pass.
  bool run(Sequences sequences) { return run(sequences, layout_, args_.causal, {kLse, &args_.lse}, {kDq, &args_.dq}); }

  // A sequence in two passes over dense operands, from packed ones under a causal mask without a window.
  bool run_split(const SequenceRange& s) {
    const MemoryScope scope(MemoryCategory::workspace);
    const SequenceRange square = square_of(s), rectangle = rectangle_of(s);
    const Tensor lse = packed_lse_rows(args_.lse, s.q_begin, s.q_length),
                 dq = Tensor::empty({s.q_length, args_.dq.size(1), args_.dq.size(2)}, args_.dq.dtype(), lse.device());
    const Operand own_lse{kLse, &lse, true};
    if (!run({&square, 1}, AttentionLayout::uniform, true, own_lse, {kDq, &args_.dq}) ||
        !run({&rectangle, 1}, AttentionLayout::uniform, false, own_lse, {kDq, &dq, true}))
      return false;
    add_rows(dq, args_.dq.narrow(0, s.q_begin, s.q_length));
    return true;
  }

 private:
  bool run(Sequences sequences, AttentionLayout layout, bool causal, const Operand& lse, const Operand& dq) {
    AttentionGraphKey key =
        key_of(args_.q, args_.k, args_.v, args_.out, sequences, layout, causal, args_.window, args_.scale);
    key.backward = true;
    key.deterministic = deterministic();
    key.dq = strides_of(*dq.tensor);
    key.dk = strides_of(args_.dk);
    key.dv = strides_of(args_.dv);
    choose_workspace(key, args_.q, args_.k);
    return cuda::run(key, sequences,
                     {{kQ, &args_.q},
                      {kK, &args_.k},
                      {kV, &args_.v},
                      {kOut, &args_.out},
                      lse,
                      {kDout, &args_.dout},
                      dq,
                      {kDk, &args_.dk},
                      {kDv, &args_.dv}},
                     reason_);
  }

  const AttentionBackwardArgs& args_;
  AttentionLayout layout_;
  std::string& reason_;
};

// 0: none fits.
std::size_t deterministic_batch(const AttentionGraphKey& key) {
  const std::int64_t bytes = key.heads * key.queries * key.keys * 2;
  const auto fitting = static_cast<std::uint64_t>(kDeterministicBytes / std::max<std::int64_t>(1, bytes));
  return static_cast<std::size_t>(key.packed ? std::bit_floor(fitting) : fitting);
}

}  // namespace

bool cudnn_attention(const AttentionArgs& args, AttentionLayout layout, std::string& reason) {
  if (reason = cudnn_missing(); !reason.empty()) return false;
  AttentionGraphKey key =
      key_of(args.q, args.k, args.v, args.out, args.sequences, layout, args.causal, args.window, args.scale);
  key.lse = args.lse.defined();
  const Operand q{kQ, &args.q}, k{kK, &args.k}, v{kV, &args.v}, out{kOut, &args.out}, lse{kLse, &args.lse};
  if (key.lse) return run(key, args.sequences, {q, k, v, out, lse}, reason);
  return run(key, args.sequences, {q, k, v, out}, reason);
}

bool cudnn_attention_backward(const AttentionBackwardArgs& args, AttentionLayout layout, std::string& reason) {
  if (reason = cudnn_missing(); !reason.empty()) return false;
  Backward backward(args, layout, reason);
  if (!deterministic()) {
    const bool can_split = layout == AttentionLayout::packed && args.causal && args.window == 0;
    std::vector<SequenceRange> whole, split;
    for (const SequenceRange& sequence : args.sequences)
      (can_split && splits(sequence) ? split : whole).push_back(sequence);
    return (whole.empty() || backward.run(whole)) &&
           std::ranges::all_of(split, [&](const SequenceRange& sequence) { return backward.run_split(sequence); });
  }
  const std::size_t batch = deterministic_batch(
      key_of(args.q, args.k, args.v, args.out, args.sequences, layout, args.causal, args.window, args.scale));
  if (batch == 0) {
    reason = "the deterministic gradients of one sequence need too much memory";
    return false;
  }
  for (std::size_t first = 0; first < args.sequences.size(); first += batch)
    if (!backward.run(args.sequences.subspan(first, std::min(batch, args.sequences.size() - first)))) return false;
  return true;
}

}  // namespace quench::cuda
