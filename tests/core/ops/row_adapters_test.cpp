#include "tests/core/ops/row_adapters_cases.h"

namespace quench {
namespace {

using testing::kRowAdaptersCases;
using testing::row_adapters_args;
using testing::row_adapters_result;
using testing::row_adapters_tolerance;
using testing::RowAdaptersCase;
using testing::values;

TEST(RowAdapters, EveryRowGetsTheUpdateOfItsAdapter) {
  for (const RowAdaptersCase& c : kRowAdaptersCases) {
    const RowAdaptersArgs args = row_adapters_args(c, 1);
    SCOPED_TRACE(op_label(args));
    const std::vector<double> expected = row_adapters_result(args), before = values(args.y);
    row_adapters(args);
    const std::vector<double> after = values(args.y);
    for (std::size_t i = 0; i < after.size(); ++i) {
      ASSERT_NEAR(after[i], expected[i], row_adapters_tolerance(c, expected[i])) << i;
      if (args.rows.data<std::int32_t>()[i / static_cast<std::size_t>(c.n)] < 0) {
        ASSERT_EQ(after[i], before[i]) << i;
      }
    }
  }
}

TEST(RowAdapters, ARowDoesNotDependOnTheOthers) {
  for (const RowAdaptersCase& c : kRowAdaptersCases) {
    const RowAdaptersArgs all = row_adapters_args(c, 2), one = row_adapters_args(c, 2);
    SCOPED_TRACE(op_label(all));
    row_adapters(all);
    for (std::int64_t row = 0; row < c.m; ++row)
      row_adapters({.x = one.x.narrow(0, row, 1),
                    .a = one.a,
                    .parts = one.parts,
                    .rows = one.rows.narrow(0, row, 1),
                    .y = one.y.narrow(0, row, 1)});
    EXPECT_EQ(values(all.y), values(one.y));
  }
}

TEST(RowAdapters, BadOperandsAreRefused) {
  const RowAdaptersArgs args = row_adapters_args(kRowAdaptersCases[0], 3);
  const auto refused = [](RowAdaptersArgs bad, const char* why) {
    try {
      row_adapters(bad);
      ADD_FAILURE() << why;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  RowAdaptersArgs bad = args;
  bad.rows = Tensor::from_values<std::int32_t>({1}, std::vector<std::int32_t>{3});
  refused(bad, "row 0 has adapter 3, expected -1 to 2");
  bad = args;
  bad.parts[0].b = args.parts[0].b.narrow(0, 0, 2);
  refused(bad, "b is");
  bad = args;
  bad.parts[1].column = 8;
  refused(bad, "a part of columns 8 to ");
  bad = args;
  bad.parts[1].rank_begin = 9;
  refused(bad, "ranks 9 to 17 of a");
  bad = args;
  bad.a = args.a.narrow(2, 0, 63);
  refused(bad, "a is");
}

}  // namespace
}  // namespace quench
