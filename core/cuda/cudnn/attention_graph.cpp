#include "core/cuda/cudnn/attention_graph.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <map>

#include "core/cuda/cudnn/library.h"
#include "core/device/call_counter.h"

namespace quench::cuda {

namespace frontend = cudnn_frontend;

namespace {

using TensorPointer = std::shared_ptr<frontend::graph::Tensor_attributes>;

struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void require(frontend::error_t status) {
  if (!status.is_bad()) return;
  throw Refusal(nvrtc_missing().empty() ? status.get_message() : nvrtc_missing());
}

// On one line.
std::string summary(std::string reason) {
  constexpr std::size_t kLength = 300;
  if (reason.size() > kLength) reason = reason.substr(0, kLength) + "...";
  std::replace(reason.begin(), reason.end(), '\n', ' ');
  return reason.empty() ? "no reason given" : reason;
}

class Builder {
 public:
  Builder(frontend::graph::Graph& graph, const AttentionGraphKey& key) : graph_(graph), key_(key) {
    graph_.set_io_data_type(frontend::DataType_t::BFLOAT16)
        .set_intermediate_data_type(frontend::DataType_t::FLOAT)
        .set_compute_data_type(frontend::DataType_t::FLOAT);
    if (!key_.packed) return;
    query_lengths_ = graph_.tensor(table(kQueryLengths, key_.batch, frontend::DataType_t::INT32));
    key_lengths_ = graph_.tensor(table(kKeyLengths, key_.batch, frontend::DataType_t::INT32));
  }

  void forward() {
    auto options = frontend::graph::SDPA_attributes().set_name("attention").set_generate_stats(key_.lse);
    describe(options);
    auto [out, lse] =
        graph_.sdpa(graph_.tensor(operand(kQ)), graph_.tensor(operand(kK)), graph_.tensor(operand(kV)), options);
    write(out, kOut);
    if (key_.lse) write(lse, kLse);
  }

  void backward() {
    auto options = frontend::graph::SDPA_backward_attributes()
                       .set_name("attention_backward")
                       .set_deterministic_algorithm(key_.deterministic);
    describe(options);
    if (key_.total_queries > 0) options.set_max_total_seq_len_q(key_.total_queries);
    if (key_.total_keys > 0) options.set_max_total_seq_len_kv(key_.total_keys);
    auto [dq, dk, dv] = graph_.sdpa_backward(graph_.tensor(operand(kQ)), graph_.tensor(operand(kK)),
                                             graph_.tensor(operand(kV)), graph_.tensor(operand(kOut)),
                                             graph_.tensor(operand(kDout)), graph_.tensor(operand(kLse)), options);
    write(dq, kDq);
    write(dk, kDk);
    write(dv, kDv);
  }

 private:
  using Attributes = frontend::graph::Tensor_attributes;

  template <class Options>
  void describe(Options& options) const {
    options.set_attn_scale(key_.scale);
    if (key_.causal && key_.bottom_right)
      options.set_causal_mask_bottom_right(true);
    else
      options.set_causal_mask(key_.causal);
    // cuDNN's convention too: keys j > i - bound are visible.
    if (key_.window > 0) options.set_diagonal_band_left_bound(static_cast<int>(key_.window));
    if (key_.packed) options.set_padding_mask(true).set_seq_len_q(query_lengths_).set_seq_len_kv(key_lengths_);
  }

  static Attributes table(std::int64_t id, std::int64_t n, frontend::DataType_t type) {
    return Attributes().set_uid(id).set_dim({n, 1, 1, 1}).set_stride({1, 1, 1, 1}).set_data_type(type);
  }

  // One name per operand, also with a shared table.
  TensorPointer offsets(AttentionOperand which) {
    const auto type = key_.wide_offsets ? frontend::DataType_t::INT64 : frontend::DataType_t::INT32;
    return graph_.tensor(table(kOffsets + which, key_.batch + 1, type));
  }

  void shape(Attributes& x, AttentionOperand which) {
    const bool of_keys = which == kK || which == kV || which == kDk || which == kDv;
    const std::int64_t length = of_keys ? key_.keys : key_.queries, heads = of_keys ? key_.kv_heads : key_.heads;
    if (which == kLse) {
      x.set_dim({key_.batch, heads, length, 1}).set_data_type(frontend::DataType_t::FLOAT);
      if (key_.packed)
        x.set_stride({heads * length, 1, heads, 1});
      else
        x.set_stride({heads * length, length, 1, 1});
    } else {
      const HeadStrides& s = strides(which);
      x.set_dim({key_.batch, heads, length, key_.dim}).set_stride({length * s.row, s.head, s.row, 1});
    }
    if (key_.packed) x.set_ragged_offset(offsets(which));
  }

  [[nodiscard]] const HeadStrides& strides(AttentionOperand which) const {
    switch (which) {
      case kQ: return key_.q;
      case kK: return key_.k;
      case kV: return key_.v;
      case kDq: return key_.dq;
      case kDk: return key_.dk;
      case kDv: return key_.dv;
      default: return key_.out;
    }
  }

  Attributes operand(AttentionOperand which) {
    Attributes x;
    x.set_uid(which);
    shape(x, which);
    return x;
  }
  void write(const TensorPointer& x, AttentionOperand which) {
    x->set_uid(which).set_output(true);
    shape(*x, which);
  }

  frontend::graph::Graph& graph_;
  const AttentionGraphKey& key_;
  TensorPointer query_lengths_, key_lengths_;
};

}  // namespace

struct AttentionGraph::Graph {
  frontend::graph::Graph graph;
};

namespace {
CallCounter graphs_made("attention.cudnn_graphs");
}  // namespace

AttentionGraph::~AttentionGraph() = default;

void AttentionGraph::build(const AttentionGraphKey& key, const CudnnSession& session) {
  graph_ = std::make_unique<Graph>();
  frontend::graph::Graph& graph = graph_->graph;
  try {
    Builder builder(graph, key);
    if (key.backward)
      builder.backward();
    else
      builder.forward();
    require(graph.validate());
    require(graph.build_operation_graph(session.handle()));
    require(graph.create_execution_plans({frontend::HeurMode_t::A}));
    require(graph.check_support(session.handle()));
    require(graph.build_plans(session.handle()));
    require(graph.get_workspace_size(workspace_bytes_));
  } catch (const std::exception& error) {
    refused_ = summary(error.what());
    graph_.reset();
  }
}

std::shared_ptr<const AttentionGraph> AttentionGraph::get(const AttentionGraphKey& key, const CudnnSession& session) {
  // Never destroyed: the library may be unloaded first. Guards the map; the session's lock guards a device's plans.
  static std::mutex& mutex = *new std::mutex;
  static auto& graphs = *new std::map<AttentionGraphKey, std::shared_ptr<const AttentionGraph>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const AttentionGraph>& slot = graphs[key];
  if (!slot) {
    auto graph = std::shared_ptr<AttentionGraph>(new AttentionGraph);
    graph->build(key, session);
    graphs_made.add();
    slot = std::move(graph);
  }
  return slot;
}

bool AttentionGraph::run(const CudnnSession& session, std::unordered_map<std::int64_t, void*>& addresses,
                         void* workspace, std::string& reason) const {
  try {
    require(graph_->graph.execute(session.handle(), addresses, workspace));
    return true;
  } catch (const std::exception& error) {
    reason = summary(error.what());
    return false;
  }
}

}  // namespace quench::cuda
