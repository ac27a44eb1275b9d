#include "distributed/fsdp/group_row_exchange.h"

#include <utility>

namespace quench::distributed {
namespace {

class GroupRowExchange final : public nn::RowExchange {
 public:
  explicit GroupRowExchange(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}
  [[nodiscard]] nn::Sharding sharding() const override { return {group_->rank(), group_->size()}; }
  void exchange(const Tensor& input, const Tensor& output, std::span<const std::int64_t> send_counts,
                std::span<const std::int64_t> receive_counts) override {
    group_->all_to_all(input, output, send_counts, receive_counts, "rows of the update").wait();
  }

 private:
  std::shared_ptr<ProcessGroup> group_;
};

}  // namespace

std::shared_ptr<nn::RowExchange> make_row_exchange(std::shared_ptr<ProcessGroup> shard) {
  if (shard->size() == 1) return nullptr;
  return std::make_shared<GroupRowExchange>(std::move(shard));
}

}  // namespace quench::distributed
