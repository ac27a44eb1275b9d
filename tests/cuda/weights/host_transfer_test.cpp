#include "core/ops/weights/host_transfer.h"

#include <cstring>

#include "core/ops/elementwise.h"
#include "core/ops/weights/random_fill.h"
#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

// Several parts of each transfer.
TEST(CudaHostTransfer, PartsMatchTensor) {
  constexpr std::int64_t kRows = 9001, kColumns = 9973;
  const Tensor x = Tensor::empty({kRows, kColumns}, DType::bf16);
  random_fill({x, {1, 2, 3}});
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const Tensor gpu = Tensor::empty(x.shape(), dtype, kGpu);
    std::int64_t calls = 0;
    write_by_rows(gpu, DType::bf16, [&](const Tensor& rows, std::int64_t first) {
      ++calls;
      Tensor(rows).copy_from(x.narrow(0, first, rows.size(0)));
    });
    EXPECT_GT(calls, 2);
    const Tensor expected = Tensor::empty(x.shape(), dtype);
    cast({x, expected});
    const auto* bytes = static_cast<const std::byte*>(expected.raw_data());
    std::size_t read = 0;
    bool same = true;
    read_by_parts(gpu, [&](std::span<const std::byte> part) {
      same &= std::memcmp(part.data(), bytes + read, part.size()) == 0;
      read += part.size();
    });
    EXPECT_TRUE(same);
    EXPECT_EQ(read, expected.nbytes());
  }
  EXPECT_THROW(read_by_parts(on_gpu(x), [](std::span<const std::byte>) { QUENCH_FAIL(ErrorCode::failed, "stop"); }),
               Error);
}

TEST(CudaHostTransfer, LargePinnedMemoryCopies) {
  for (const std::int64_t bytes : {std::int64_t{1} << 12, (std::int64_t{16} << 20) + 5, std::int64_t{300} << 20}) {
    const Tensor host = Tensor::empty_pinned({bytes}, DType::u8, kGpu);
    std::memset(host.raw_data(), 0x5A, host.nbytes());
    const Tensor back = host.to(kGpu).to(Device{});
    EXPECT_EQ(std::memcmp(host.raw_data(), back.raw_data(), host.nbytes()), 0) << bytes;
  }
}

}  // namespace
}  // namespace quench::testing
