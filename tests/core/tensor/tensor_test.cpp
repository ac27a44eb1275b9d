#include "core/tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace quench {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr Device kMeta{DeviceType::meta, 0};

// 0, 1, 2, ... in row-major order.
Tensor counting(const Shape& shape) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0);
  return Tensor::from_values<std::int32_t>(shape, values);
}

// Elements of a view in row-major order, read through its strides.
std::vector<std::int32_t> elements(const Tensor& t) {
  std::vector<std::int32_t> result;
  for (std::int64_t n = 0; n < t.numel(); ++n) {
    std::int64_t rest = n, offset = 0;
    for (int axis = t.rank() - 1; axis >= 0; --axis) {
      offset += rest % t.size(axis) * t.stride(axis);
      rest /= t.size(axis);
    }
    result.push_back(t.data<std::int32_t>()[offset]);
  }
  return result;
}

using Values = std::vector<std::int32_t>;

TEST(Tensor, IsExclusiveWithinTheHandlesThatItsOwnerKnows) {
  const Tensor t = counting({2, 3});
  EXPECT_TRUE(t.is_exclusive());
  {
    const Tensor view = t.narrow(0, 0, 1);
    EXPECT_FALSE(t.is_exclusive());
    EXPECT_FALSE(view.is_exclusive());
    EXPECT_TRUE(t.is_exclusive(2));
    EXPECT_EQ(view.handles(), 2);
  }
  EXPECT_TRUE(t.is_exclusive());
  EXPECT_EQ(Tensor().handles(), 0);
}

TEST(Tensor, DefaultIsUndefined) {
  const Tensor t;
  EXPECT_FALSE(t.defined());
  EXPECT_EQ(t.describe(), "undefined tensor");
}

TEST(Tensor, EmptyIsContiguousAlignedAndSized) {
  const Tensor t = Tensor::empty({3, 5}, DType::bf16);
  EXPECT_TRUE(t.defined());
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_EQ(t.nbytes(), 30u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.raw_data()) % 64, 0u);
  EXPECT_EQ(t.describe(), "bf16[3, 5] on cpu");
}

TEST(Tensor, EmptyOfNoElements) {
  const Tensor t = Tensor::empty({0, 7}, DType::f32);
  EXPECT_TRUE(t.defined());
  EXPECT_EQ(t.nbytes(), 0u);
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_NO_THROW((void)t.clone());
  const Tensor vast = Tensor::empty({0, std::int64_t{1} << 62, 4}, DType::f32);
  EXPECT_TRUE(vast.is_contiguous());
}

TEST(Tensor, RefusesSizesThatOverflow) {
  EXPECT_THAT([] { (void)Tensor::empty({std::int64_t{1} << 60}, DType::f32); },
              ThrowsMessage<Error>(HasSubstr("too large")));
  EXPECT_THROW((void)Tensor::empty({-1}, DType::f32), Error);
}

TEST(Tensor, ZerosAreZero) {
  const Tensor t = Tensor::zeros({1000}, DType::i32);
  for (const std::int32_t value : elements(t)) ASSERT_EQ(value, 0);
}

TEST(Tensor, FromValuesCopiesAndChecksTheCount) {
  std::vector<std::int32_t> values{1, 2, 3, 4};
  const Tensor t = Tensor::from_values<std::int32_t>({2, 2}, values);
  values[0] = 9;
  EXPECT_EQ(elements(t), (Values{1, 2, 3, 4}));
  EXPECT_THAT([&] { (void)Tensor::from_values<std::int32_t>({3}, values); },
              ThrowsMessage<Error>(HasSubstr("4 values for shape [3]")));
}

TEST(Tensor, FromHostBorrows) {
  std::int32_t values[] = {1, 2, 3};
  const Tensor t = Tensor::from_host(values, {3}, DType::i32);
  t.data<std::int32_t>()[1] = 7;
  EXPECT_EQ(values[1], 7);
}

TEST(Tensor, TypedAccessChecksTheDtype) {
  const Tensor t = Tensor::empty({2}, DType::bf16);
  EXPECT_NO_THROW((void)t.data<bfloat16>());
  EXPECT_THAT([&] { (void)t.data<float>(); }, ThrowsMessage<Error>(HasSubstr("bf16 read as f32")));
}

TEST(Tensor, ViewSharesBytesUnderAnotherShape) {
  const Tensor t = counting({2, 6});
  const Tensor v = t.view({3, 4});
  EXPECT_EQ(v.storage(), t.storage());
  EXPECT_EQ(v.strides(), (Shape{4, 1}));
  EXPECT_EQ(elements(v), elements(t));
  EXPECT_THAT([&] { (void)t.view({5}); }, ThrowsMessage<Error>(HasSubstr("has no view of shape [5]")));
  EXPECT_THAT([&] { (void)t.transpose(0, 1).view({12}); }, ThrowsMessage<Error>(HasSubstr("not contiguous")));
}

TEST(Tensor, NarrowTakesARange) {
  const Tensor t = counting({3, 4});
  EXPECT_EQ(elements(t.narrow(0, 1, 2)), (Values{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(elements(t.narrow(-1, 1, 2)), (Values{1, 2, 5, 6, 9, 10}));
  EXPECT_TRUE(t.narrow(0, 1, 2).is_contiguous());
  EXPECT_FALSE(t.narrow(1, 1, 2).is_contiguous());
  EXPECT_EQ(t.narrow(0, 3, 0).numel(), 0);
}

TEST(Tensor, NarrowRefusesWhatLiesOutside) {
  const Tensor t = counting({3, 4});
  EXPECT_THROW((void)t.narrow(0, -1, 1), Error);
  EXPECT_THROW((void)t.narrow(0, 2, 2), Error);
  EXPECT_THROW((void)t.narrow(0, 0, -1), Error);
  EXPECT_THROW((void)t.narrow(2, 0, 1), Error);
  EXPECT_THAT([&] { (void)t.narrow(1, std::numeric_limits<std::int64_t>::max(), 2); },
              ThrowsMessage<Error>(HasSubstr("outside axis 1 of i32[3, 4] on cpu")));
}

TEST(Tensor, SelectDropsTheAxis) {
  const Tensor t = counting({2, 3, 2});
  EXPECT_EQ(elements(t.select(0, 1)), (Values{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(elements(t.select(-1, 1)), (Values{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(t.select(1, 2).shape(), (Shape{2, 2}));
  EXPECT_THROW((void)t.select(1, 3), Error);
  EXPECT_THROW((void)t.select(1, -1), Error);
}

TEST(Tensor, TransposeSwapsAxes) {
  const Tensor t = counting({2, 3});
  const Tensor turned = t.transpose(0, -1);
  EXPECT_EQ(turned.shape(), (Shape{3, 2}));
  EXPECT_EQ(elements(turned), (Values{0, 3, 1, 4, 2, 5}));
  EXPECT_FALSE(turned.is_contiguous());
  EXPECT_TRUE(counting({1, 5}).transpose(0, 1).is_contiguous());  // axes of one element do not matter
}

TEST(Tensor, StridedReadsAnyPatternWithinTheTensor) {
  const Tensor t = counting({6});
  EXPECT_EQ(elements(t.strided({2, 3}, {1, 2}, 0)), (Values{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(elements(t.strided({3}, {-2}, 5)), (Values{5, 3, 1}));
  EXPECT_EQ(elements(t.strided({2, 2}, {0, 1}, 4)), (Values{4, 5, 4, 5}));
}

TEST(Tensor, StridedRefusesWhatReachesOutside) {
  const Tensor t = counting({6});
  constexpr std::int64_t kHugeStride = std::int64_t{1} << 62;
  EXPECT_THROW((void)t.strided({3}, {3}, 0), Error);
  EXPECT_THROW((void)t.strided({3}, {1}, 4), Error);
  EXPECT_THROW((void)t.strided({1}, {1}, -1), Error);
  EXPECT_THROW((void)t.strided({2}, {-1}, 0), Error);                           // below the first element
  EXPECT_THROW((void)t.strided({2, 2}, {-3, 3}, 2), Error);                     // ends cancel in a sum, not in memory
  EXPECT_THROW((void)t.strided({3, 3}, {kHugeStride, kHugeStride}, 0), Error);  // overflow
  EXPECT_THROW((void)t.strided({2, 2}, {1}, 0), Error);
  EXPECT_THROW((void)t.transpose(0, 0).narrow(0, 0, 6).strided({7}, {1}, 0), Error);
}

TEST(Tensor, ReinterpretKeepsTheBytes) {
  const float one = 1.0f;
  const Tensor t = Tensor::from_values<float>({1}, std::span(&one, 1));
  EXPECT_EQ(t.reinterpret(DType::i32).data<std::int32_t>()[0], 0x3F800000);
  EXPECT_THAT([&] { (void)t.reinterpret(DType::bf16); }, ThrowsMessage<Error>(HasSubstr("as bf16")));
  // Packed codes as bytes, and back.
  const Tensor codes = Tensor::zeros({3, 8}, DType::i4).narrow(1, 2, 4), bytes = codes.reinterpret(DType::u8);
  EXPECT_EQ(bytes.shape(), Shape({3, 2}));
  EXPECT_EQ(bytes.strides(), Shape({4, 1}));
  EXPECT_EQ(bytes.raw_data(), codes.raw_data());
  EXPECT_EQ(bytes.reinterpret(DType::f4_e2m1).shape(), codes.shape());
  EXPECT_EQ(bytes.reinterpret(DType::i4).strides(), codes.strides());
  EXPECT_THAT([&] { (void)codes.reinterpret(DType::i16); }, ThrowsMessage<Error>(HasSubstr("as i16")));
  EXPECT_THAT([&] { (void)bytes.transpose(0, 1).reinterpret(DType::i4); }, ThrowsMessage<Error>(HasSubstr("as i4")));
}

TEST(Tensor, ViewsKeepTheStorageAlive) {
  Tensor view;
  {
    const Tensor t = counting({4, 2});
    view = t.narrow(0, 3, 1);
  }
  EXPECT_EQ(elements(view), (Values{6, 7}));
}

TEST(Tensor, CloneAndCopyAreIndependent) {
  const Tensor t = counting({3});
  const Tensor copy = t.clone();
  copy.data<std::int32_t>()[0] = 9;
  EXPECT_EQ(t.data<std::int32_t>()[0], 0);
  Tensor target = Tensor::empty_like(t);
  target.copy_from(copy);
  EXPECT_EQ(elements(target), (Values{9, 1, 2}));
  target.zero();
  EXPECT_EQ(elements(target), (Values{0, 0, 0}));
}

TEST(Tensor, CopyRefusesAnotherShapeDtypeOrLayout) {
  Tensor target = Tensor::empty({2, 3}, DType::i32);
  EXPECT_THAT([&] { target.copy_from(counting({3, 2})); }, ThrowsMessage<Error>(HasSubstr("i32[3, 2]")));
  EXPECT_THROW(target.copy_from(Tensor::empty({2, 3}, DType::f32)), Error);
  EXPECT_THROW(target.copy_from(counting({3, 2}).transpose(0, 1)), Error);
  EXPECT_THROW((void)counting({3, 2}).transpose(0, 1).clone(), Error);
  EXPECT_THROW(target.transpose(0, 1).zero(), Error);
}

TEST(Tensor, ToTheSameDeviceIsTheSameTensor) {
  const Tensor t = counting({2});
  EXPECT_EQ(t.to(Device{}).raw_data(), t.raw_data());
}

TEST(Tensor, MetaDeviceHasShapesWithoutBytes) {
  const Tensor t = Tensor::zeros({std::int64_t{1} << 40}, DType::f32, kMeta);
  EXPECT_EQ(t.nbytes(), std::size_t{1} << 42);
  EXPECT_TRUE(t.narrow(0, 5, 10).clone().device().is_meta());
  EXPECT_EQ(counting({2}).to(kMeta).describe(), "i32[2] on meta");
}

TEST(PackedTensor, TwoElementsAByte) {
  const Tensor t = Tensor::empty({3, 6}, DType::f4_e2m1);
  EXPECT_EQ(t.nbytes(), 9u);
  const auto* start = static_cast<const std::byte*>(t.raw_data());
  EXPECT_EQ(static_cast<const std::byte*>(t.narrow(0, 1, 1).raw_data()) - start, 3);
  EXPECT_EQ(static_cast<const std::byte*>(t.narrow(1, 2, 4).raw_data()) - start, 1);
  EXPECT_EQ(static_cast<const std::byte*>(t.select(0, 2).raw_data()) - start, 6);
  EXPECT_EQ(t.view({9, 2}).numel(), 18);
}

TEST(PackedTensor, RefusesViewsThatSplitAByte) {
  const auto refuses = [](const auto& body) {
    EXPECT_THAT(body, ThrowsMessage<Error>(HasSubstr("two elements a byte")));
  };
  refuses([] { (void)Tensor::empty({2, 3}, DType::i4); });
  refuses([] { (void)Tensor::empty({}, DType::i4); });
  std::uint8_t bytes[3] = {};
  refuses([&] { (void)Tensor::from_host(bytes, {5}, DType::i4); });
  const Tensor t = Tensor::empty({2, 6}, DType::i4);
  refuses([&] { (void)t.view({4, 3}); });
  refuses([&] { (void)t.narrow(1, 1, 2); });
  refuses([&] { (void)t.narrow(1, 0, 3); });
  refuses([&] { (void)t.select(1, 0); });
  refuses([&] { (void)t.transpose(0, 1); });
  refuses([&] { (void)t.strided({2, 2}, {3, 1}, 0); });
  refuses([&] { (void)t.strided({2}, {1}, 1); });
}

TEST(CheckTensor, SaysWhatWasExpected) {
  const Tensor t = Tensor::empty({2, 3}, DType::f32);
  EXPECT_NO_THROW(check_tensor("op", "x", t, {2, 3}, DType::f32));
  EXPECT_NO_THROW(check_tensor("op", "x", t, {-1, 3}, DType::f32));
  EXPECT_THAT(
      [&] {
        check_tensor("op", "x", t, {2, 4}, DType::f32);
      },
      ThrowsMessage<Error>(HasSubstr("op: x is f32[2, 3] on cpu, expected f32[2, 4]")));
  EXPECT_THROW(check_tensor("op", "x", t, {2, 3}, DType::bf16), Error);
  EXPECT_THROW(check_tensor("op", "x", t, {6}, DType::f32), Error);
  EXPECT_THAT([&] { check_tensor("op", "x", Tensor(), {2}, DType::f32); },
              ThrowsMessage<Error>(HasSubstr("x is undefined tensor")));
}

}  // namespace
}  // namespace quench
