#include "core/ops/low_rank_gradients.h"

namespace quench {
namespace {

QUENCH_CPU_KERNEL(low_rank_gradients_slot, low_rank_gradients_by_products);

}  // namespace
}  // namespace quench
