#include "core/number/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace quench {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const DType kAll[] = {DType::f32,     DType::f64,     DType::f16, DType::bf16, DType::f8_e4m3, DType::f8_e5m2,
                      DType::f8_e8m0, DType::f4_e2m1, DType::i4,  DType::i8,   DType::u8,      DType::i16,
                      DType::u16,     DType::i32,     DType::u32, DType::i64,  DType::u64,     DType::boolean};

TEST(DType, NamesAreDistinctAndReadBack) {
  std::set<std::string_view> names;
  for (const DType dtype : kAll) {
    EXPECT_TRUE(names.insert(to_string(dtype)).second) << to_string(dtype);
    EXPECT_EQ(dtype_from_string(to_string(dtype)), dtype);
  }
}

TEST(DType, ReadsTheLongSpellings) {
  EXPECT_EQ(dtype_from_string("float32"), DType::f32);
  EXPECT_EQ(dtype_from_string("bfloat16"), DType::bf16);
  EXPECT_EQ(dtype_from_string("float16"), DType::f16);
  for (const std::string_view unknown : {"", "F32", "float8", "bf16 "})
    EXPECT_EQ(dtype_from_string(unknown), std::nullopt) << unknown;
}

TEST(DType, WidthsMatchTheStorageTypes) {
  EXPECT_EQ(byte_size(DType::f32), 4);
  EXPECT_EQ(byte_size(DType::f64), 8);
  EXPECT_EQ(byte_size(DType::bf16), 2);
  EXPECT_EQ(byte_size(DType::f16), 2);
  EXPECT_EQ(byte_size(DType::f8_e8m0), 1);
  EXPECT_EQ(byte_size(DType::boolean), 1);
  EXPECT_EQ(byte_size(DType::i64), 8);
  for (const DType dtype : kAll) {
    if (bit_width(dtype) < 8) continue;
    EXPECT_EQ(bit_width(dtype), 8 * byte_size(dtype)) << to_string(dtype);
  }
}

TEST(DType, PackedTypesHaveNoByteSize) {
  for (const DType packed : {DType::f4_e2m1, DType::i4}) {
    EXPECT_EQ(bit_width(packed), 4);
    EXPECT_THAT([&] { (void)byte_size(packed); }, ThrowsMessage<Error>(HasSubstr("packed")));
  }
}

TEST(DType, FloatingMeansFloats) {
  for (const DType dtype : kAll) {
    const bool named_as_float = to_string(dtype)[0] == 'f' || dtype == DType::bf16;
    EXPECT_EQ(is_floating(dtype), named_as_float) << to_string(dtype);
  }
}

TEST(Dispatch, CallsTheBodyWithTheMatchingType) {
  std::string called;
  const auto body = [&]<class T>() { called = std::string(to_string(dtype_of<T>)); };
  dispatch<float, bfloat16, std::int64_t>(DType::bf16, "op", body);
  EXPECT_EQ(called, "bf16");
}

TEST(Dispatch, ReturnsTheBodysResult) {
  const auto size = [](DType dtype) {
    return dispatch<float, double, bfloat16>(dtype, "op", []<class T>() { return sizeof(T); });
  };
  EXPECT_EQ(size(DType::f64), 8u);
  EXPECT_EQ(size(DType::bf16), 2u);
}

TEST(Dispatch, NamesTheOpAndTheDtypeItRefuses) {
  const auto refuse = [] { dispatch<float, bfloat16>(DType::i32, "rms_norm", []<class T>() {}); };
  EXPECT_THAT(refuse, ThrowsMessage<Error>(HasSubstr("rms_norm: dtype i32 is not supported")));
  const auto refuse_value = [] { (void)dispatch<float>(DType::f64, "sum", []<class T>() { return 1; }); };
  EXPECT_THAT(refuse_value, ThrowsMessage<Error>(HasSubstr("sum: dtype f64")));
}

}  // namespace
}  // namespace quench
