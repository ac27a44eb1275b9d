#include "recipes/lora/token_rows.h"

#include <algorithm>
#include <utility>

#include "core/ops/elementwise.h"
#include "core/system/key_error.h"

namespace quench::recipes {
namespace {

constexpr std::string_view kTokensKey = "lora.trainable_token_indices",
                           kRowsName = "token_adapter.trainable_tokens_delta";

void put_rows(const Tensor& rows, const Tensor& table, const Tensor& places) {
  copy_rows({rows, table, places.to(table.device())});
}

}  // namespace

// The patched table as a parameter.
class TokenRows::Table {
 public:
  Table(nn::Parameter& original, const std::vector<std::int64_t>& ids, const nn::ParameterOptions& options)
      : original_(original) {
    const Shape shape = original.global_shape;
    const auto count = static_cast<std::int64_t>(ids.size());
    rows_ = nn::make_parameter({count, shape[1]}, options, nn::Initializer::zeros);
    rows_.adapter = true;
    std::vector<std::int32_t> places(ids.begin(), ids.end());
    // Row of each token, or past the last.
    std::vector<std::int32_t> row_of(static_cast<std::size_t>(shape[0]), static_cast<std::int32_t>(count));
    for (std::size_t i = 0; i < ids.size(); ++i)
      row_of[static_cast<std::size_t>(ids[i])] = static_cast<std::int32_t>(i);
    places_ = Tensor::from_values<std::int32_t>({count}, places).to(options.device);
    row_of_ = Tensor::from_values<std::int32_t>({shape[0]}, row_of).to(options.device);
    if (rows_.variable.requires_grad()) {
      gradient_ = std::make_shared<autograd::Gradient>(shape, options.grad_dtype, options.device, true);
      gradient_->on_ready([this] { take_gradient(); });
    }
    view_.name = original.name;
    view_.pieces = original.pieces;
    view_.global_shape = shape;
    view_.shard = {0, shape[0]};
    view_.variable = nn::Variable(Tensor::empty({0}, options.dtype, options.device));
    view_.whole = nn::Weight(shape, options.dtype, options.device, std::make_shared<Storage>(*this), gradient_);
  }

  [[nodiscard]] nn::Parameter& rows() noexcept { return rows_; }
  [[nodiscard]] const Tensor& places() const noexcept { return places_; }
  [[nodiscard]] const nn::Parameter& view() {
    view_.version = original_.version + rows_.version;
    return view_;
  }

 private:
  // Freed when unused.
  class Storage final : public autograd::WeightStorage {
   public:
    explicit Storage(Table& table) : table_(table) {}
    [[nodiscard]] Tensor acquire() override {
      if (uses_++ == 0) {
        const MemoryScope scope(MemoryCategory::workspace);
        const auto original = table_.original_.weight().acquire(), rows = table_.rows_.weight().acquire();
        values_ = original.value().clone();
        put_rows(rows.value(), values_, table_.places_);
      }
      return values_;
    }
    void release() noexcept override {
      if (--uses_ == 0) values_ = Tensor();
    }

   private:
    Table& table_;
    int uses_ = 0;
    Tensor values_;
  };

  void take_gradient() {
    const Tensor all = gradient_->value();
    const MemoryScope scope(MemoryCategory::workspace);
    const Tensor taken = Tensor::empty(rows_.global_shape, all.dtype(), all.device());
    copy_rows({all, taken, row_of_});
    rows_.weight().gradient()->contribute(taken);
    gradient_->release();
  }

  nn::Parameter& original_;
  nn::Parameter rows_;
  nn::Parameter view_;
  Tensor places_;                                 // i32 [tokens]: ids
  Tensor row_of_;                                 // i32 [vocabulary]
  std::shared_ptr<autograd::Gradient> gradient_;  // accumulator of the patched table; null: frozen
};

namespace {

// Lookup in the patched table.
template <class Table>
class PatchedRows final : public nn::EmbeddingKernel {
 public:
  PatchedRows(std::shared_ptr<const nn::EmbeddingKernel> base, std::shared_ptr<Table> table)
      : base_(std::move(base)), table_(std::move(table)), name_(fmt::format("{}, trained tokens", base_->name())) {}
  [[nodiscard]] nn::Variable apply(const nn::Parameter& /*table*/, const Tensor& ids) const override {
    return base_->apply(table_->view(), ids);
  }
  [[nodiscard]] std::vector<nn::KernelParameter> parameters() const override {
    std::vector<nn::KernelParameter> all = base_->parameters();
    all.push_back({std::string(kRowsName), &table_->rows()});
    return all;
  }
  [[nodiscard]] const nn::Parameter& read_weight(const nn::Parameter& /*table*/) const override {
    return table_->view();
  }
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms(const nn::Parameter& /*table*/) const override {
    return base_->head_gemms(table_->view());
  }
  [[nodiscard]] std::string_view name() const override { return name_; }

 private:
  std::shared_ptr<const nn::EmbeddingKernel> base_;
  std::shared_ptr<Table> table_;
  std::string name_;
};

// GEMMs of a head with the patched weight.
template <class Table>
class PatchedHead final : public nn::LinearKernelWrapper {
 public:
  PatchedHead(std::shared_ptr<const nn::LinearKernel> base, std::shared_ptr<Table> table)
      : LinearKernelWrapper(std::move(base)),
        table_(std::move(table)),
        name_(fmt::format("{}, trained tokens", wrapped().name())) {}
  [[nodiscard]] std::vector<nn::KernelParameter> parameters() const override {
    std::vector<nn::KernelParameter> all = wrapped().parameters();
    const nn::ParameterPiece piece{fmt::format("{}.{}", nn::kHeadName, kRowsName), 0, table_->rows().global_shape[0]};
    all.push_back({std::string(kRowsName), &table_->rows(), {piece}});
    return all;
  }
  [[nodiscard]] std::shared_ptr<const nn::LinearKernel> with_adapter(
      const std::shared_ptr<nn::LowRankAdapter>& /*adapter*/) const override {
    return nullptr;
  }
  [[nodiscard]] const nn::Parameter& read_weight(const nn::Parameter& /*weight*/) const override {
    return table_->view();
  }
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms(const nn::Parameter& /*weight*/) const override {
    return wrapped().head_gemms(table_->view());
  }
  [[nodiscard]] std::string_view name() const override { return name_; }

 private:
  [[nodiscard]] nn::LinearOutput do_run(const nn::LinearCall& call, const nn::Parameter& /*weight*/,
                                        const nn::Weight& bias) const override {
    return wrapped().run(call, table_->view(), bias);
  }

  std::shared_ptr<Table> table_;
  std::string name_;
};

void require_ids(const std::vector<std::int64_t>& ids, std::int64_t vocabulary) {
  std::vector<std::int64_t> sorted = ids;
  std::ranges::sort(sorted);
  const auto repeated = std::ranges::adjacent_find(sorted);
  QUENCH_CHECK_KEY(ErrorCode::bad_config, std::string(kTokensKey), repeated == sorted.end(), "{} is listed twice",
                   repeated == sorted.end() ? 0 : *repeated);
  QUENCH_CHECK_KEY(ErrorCode::bad_config, std::string(kTokensKey), sorted.front() >= 0 && sorted.back() < vocabulary,
                   "{} is no token of this model, whose vocabulary has {}",
                   sorted.front() < 0 ? sorted.front() : sorted.back(), vocabulary);
}

}  // namespace

nn::Parameter& TokenRows::Entry::original() const {
  return embedding != nullptr ? embedding->weight() : head->weight();
}

TokenRows::TokenRows(nn::Module& root, TokenIds ids, const nn::ParameterOptions& parameters) {
  Entry table{.name = {}, .ids = std::move(ids.embedding)}, head{.name = {}, .ids = std::move(ids.head)};
  root.visit([&](const std::string& name, nn::Module& module) {
    if (auto* embedding = dynamic_cast<nn::Embedding*>(&module)) {
      table.embedding = embedding;
      table.name = name;
    }
    if (auto* linear = dynamic_cast<nn::Linear*>(&module); linear != nullptr && name == nn::kHeadName) {
      head.head = linear;
      head.name = name;
    }
  });
  QUENCH_CHECK_KEY(ErrorCode::bad_config, std::string(kTokensKey), table.ids.empty() || table.embedding != nullptr,
                   "the model has no embedding");
  QUENCH_CHECK_KEY(ErrorCode::bad_config, std::string(kTokensKey), head.ids.empty() || head.head != nullptr,
                   "names rows of lm_head, which is tied to the embedding in this model; name those of embed_tokens");
  const MemoryScope scope(MemoryCategory::parameters);
  nn::ParameterOptions options = parameters;
  options.sharding = options.expert_sharding = {};
  options.deferred = false;
  for (Entry* entry : {&table, &head}) {
    if (entry->ids.empty()) continue;
    require_ids(entry->ids, entry->original().global_shape[0]);
    entry->table = std::make_shared<Table>(entry->original(), entry->ids, options);
    entries_.push_back(std::move(*entry));
  }
}

TokenRows::~TokenRows() = default;

std::vector<TokenRows::Module> TokenRows::modules() const {
  std::vector<Module> all;
  for (const Entry& entry : entries_) all.push_back({entry.name, entry.ids, &entry.table->rows()});
  return all;
}

void TokenRows::attach() const {
  for (const Entry& entry : entries_) {
    if (entry.embedding != nullptr) {
      entry.embedding_base = entry.embedding->shared_kernel();
      entry.embedding->set_kernel(std::make_shared<PatchedRows<Table>>(entry.embedding_base, entry.table));
    } else {
      entry.head_base = entry.head->shared_kernel();
      entry.head->set_kernel(std::make_shared<PatchedHead<Table>>(entry.head_base, entry.table));
    }
  }
}

void TokenRows::detach() const {
  for (const Entry& entry : entries_) {
    if (entry.embedding_base) entry.embedding->set_kernel(std::exchange(entry.embedding_base, nullptr));
    if (entry.head_base) entry.head->set_kernel(std::exchange(entry.head_base, nullptr));
  }
}

void TokenRows::merge() const {
  for (const Entry& entry : entries_) {
    put_rows(entry.table->rows().variable.value(), entry.original().variable.value(), entry.table->places());
    entry.original().mark_changed();
  }
}

void TokenRows::merge_into(const nn::Parameter& weight, const Tensor& values, const nn::WholeRows& whole) const {
  for (const Entry& entry : entries_) {
    if (&entry.original() != &weight) continue;
    const auto rows = nn::whole_weight(entry.table->rows(), whole).acquire();
    put_rows(rows.value().to(values.device()), values, entry.table->places());
  }
}

void TokenRows::begin(const nn::WholeRows& whole) const {
  for (const Entry& entry : entries_) {
    const auto original = nn::whole_weight(entry.original(), whole).acquire();
    nn::Parameter& rows = entry.table->rows();
    const Tensor host = original.value().to(Device{});
    const Tensor chosen = Tensor::empty(rows.global_shape, host.dtype());
    for (std::size_t i = 0; i < entry.ids.size(); ++i) {
      Tensor row = chosen.narrow(0, static_cast<std::int64_t>(i), 1);
      row.copy_from(host.narrow(0, entry.ids[i], 1));
    }
    Tensor target = rows.variable.value();
    target.copy_from(chosen);
    rows.mark_changed();
  }
}

}  // namespace quench::recipes
