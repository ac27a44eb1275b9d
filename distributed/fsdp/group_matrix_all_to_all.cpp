#include "distributed/fsdp/group_matrix_all_to_all.h"

#include <utility>

namespace quench::distributed {
namespace {

class GroupMatrixAllToAll final : public nn::MatrixAllToAll {
 public:
  explicit GroupMatrixAllToAll(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}
  [[nodiscard]] nn::Sharding sharding() const override { return {group_->rank(), group_->size()}; }
  void exchange(const Tensor& input, const Tensor& output, std::span<const std::int64_t> send_counts,
                std::span<const std::int64_t> receive_counts) override {
    group_->all_to_all(input, output, send_counts, receive_counts, "rows of the update").wait();
  }

 private:
  std::shared_ptr<ProcessGroup> group_;
};

}  // namespace

std::shared_ptr<nn::MatrixAllToAll> make_matrix_all_to_all(std::shared_ptr<ProcessGroup> shard) {
  if (shard->size() == 1) return nullptr;
  return std::make_shared<GroupMatrixAllToAll>(std::move(shard));
}

}  // namespace quench::distributed
