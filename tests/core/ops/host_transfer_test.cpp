#include "core/ops/weights/host_transfer.h"

#include "core/ops/elementwise.h"
#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

TEST(HostTransfer, ReadsWholeTensorsOfTheHost) {
  Generator random(1);
  const Tensor x = random.normal({7, 3}, DType::bf16);
  std::size_t calls = 0, bytes = 0;
  read_by_parts(x, [&](std::span<const std::byte> part) {
    ++calls;
    bytes += part.size();
    EXPECT_EQ(part.data(), x.raw_data());
  });
  EXPECT_EQ(calls, 1u);
  EXPECT_EQ(bytes, x.nbytes());
}

TEST(HostTransfer, RowsAreWrittenInPlaceOrConverted) {
  Generator random(2);
  const Tensor x = random.normal({5, 4}, DType::f32);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor out = Tensor::empty({5, 4}, dtype), expected = Tensor::empty({5, 4}, dtype);
    cast({x, expected});
    write_by_rows(out, DType::f32, [&](const Tensor& rows, std::int64_t first) {
      EXPECT_EQ(rows.raw_data() == out.raw_data(), dtype == DType::f32);
      Tensor(rows).copy_from(x.narrow(0, first, rows.size(0)));
    });
    EXPECT_TRUE(close(out, values(expected), 0, 0));
  }
  write_by_rows(Tensor::empty({0, 4}, DType::f32), DType::f32, [](const Tensor&, std::int64_t) { FAIL(); });
}

}  // namespace
}  // namespace quench
