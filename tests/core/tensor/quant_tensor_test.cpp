#include "core/tensor/quant_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quench {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const QuantFormat kRows{.granularity = Granularity::row};
const QuantFormat kMx{.element = ElementFormat::e2m1,
                      .granularity = Granularity::block,
                      .block_size = 32,
                      .scale_dtype = DType::f8_e8m0,
                      .scale_direction = ScaleDirection::decode};
const QuantFormat kNvfp4{.element = ElementFormat::e2m1,
                         .granularity = Granularity::block,
                         .block_size = 16,
                         .scale_dtype = DType::f8_e4m3,
                         .scale_direction = ScaleDirection::decode};

QuantFormat transposed(QuantFormat format) {
  format.orientation = Orientation::transposed;
  return format;
}

TEST(QuantFormat, ShapesOfPayloadAndScales) {
  const Shape logical{3, 64, 96};
  EXPECT_EQ(QuantFormat{}.scales_shape(logical), Shape());
  EXPECT_EQ(kRows.scales_shape(logical), (Shape{3, 64, 1}));
  EXPECT_EQ(QuantFormat{.granularity = Granularity::column}.scales_shape(logical), (Shape{3, 1, 96}));
  EXPECT_EQ(kMx.scales_shape(logical), (Shape{3, 64, 3}));
  EXPECT_EQ(kMx.payload_shape(logical), logical);
  EXPECT_EQ(transposed(kMx).payload_shape(logical), (Shape{3, 96, 64}));
  EXPECT_EQ(transposed(kMx).scales_shape(logical), (Shape{3, 96, 2}));
  EXPECT_EQ(transposed(kRows).payload_shape(logical), (Shape{3, 96, 64}));
  EXPECT_EQ(transposed(kRows).scales_shape(logical), (Shape{3, 64, 1}));
}

TEST(QuantFormat, RefusesWhatMakesNoSense) {
  EXPECT_THAT([] { (void)QuantFormat{.granularity = Granularity::block}.payload_shape({32}); },
              ThrowsMessage<Error>(HasSubstr("block size")));
  EXPECT_THAT([] { (void)QuantFormat{.block_size = 32}.payload_shape({32}); },
              ThrowsMessage<Error>(HasSubstr("block size")));
  EXPECT_THAT([] { (void)QuantFormat{.scale_dtype = DType::f8_e8m0}.payload_shape({32}); },
              ThrowsMessage<Error>(HasSubstr("scales of dtype f8_e8m0")));
  EXPECT_THAT([] { (void)kMx.payload_shape({4, 40}); }, ThrowsMessage<Error>(HasSubstr("axis of 40")));
  EXPECT_THAT([] { (void)transposed(kMx).payload_shape({64}); }, ThrowsMessage<Error>(HasSubstr("needs rank 2")));
  EXPECT_THAT([] { (void)kRows.payload_shape({}); }, ThrowsMessage<Error>(HasSubstr("needs rank 1")));
}

TEST(QuantTensor, EmptyAllocatesWhatTheFormatSays) {
  const QuantTensor q = QuantTensor::empty(kMx, {64, 96}, DType::bf16);
  EXPECT_EQ(q.payload().dtype(), DType::f4_e2m1);
  EXPECT_EQ(q.payload().shape(), (Shape{64, 96}));
  EXPECT_EQ(q.scales().dtype(), DType::f8_e8m0);
  EXPECT_EQ(q.nbytes(), std::size_t{64 * 48 + 64 * 3});
  EXPECT_EQ(q.source_dtype(), DType::bf16);
  EXPECT_EQ(q.describe(), "[64, 96] as e2m1 by block of 32 on cpu");
  EXPECT_FALSE(QuantTensor().defined());
  EXPECT_EQ(QuantTensor().nbytes(), 0u);
}

TEST(QuantTensor, SixBitCodesTakeAByteEach) {
  QuantFormat format = kMx;
  format.element = ElementFormat::e3m2;
  const QuantTensor q = QuantTensor::empty(format, {2, 32}, DType::f32);
  EXPECT_EQ(q.payload().dtype(), DType::u8);
  EXPECT_EQ(q.payload().nbytes(), 64u);
}

TEST(QuantTensor, ConstructionNamesThePartThatDoesNotFit) {
  const Tensor payload = Tensor::empty({4, 32}, DType::f8_e4m3), scales = Tensor::empty({4, 1}, DType::f32);
  EXPECT_NO_THROW(QuantTensor(kRows, {4, 32}, DType::bf16, payload, scales));
  EXPECT_THAT(
      [&] {
        QuantTensor(kRows, {4, 16}, DType::bf16, payload, scales);
      },
      ThrowsMessage<Error>(HasSubstr("payload is f8_e4m3[4, 32] on cpu, expected f8_e4m3[4, 16]")));
  EXPECT_THAT(
      [&] {
        QuantTensor(kRows, {4, 32}, DType::bf16, payload, Tensor::empty({1, 4}, DType::f32));
      },
      ThrowsMessage<Error>(HasSubstr("scales is f32[1, 4]")));
  EXPECT_THAT(
      [&] {
        QuantTensor(kRows, {4, 32}, DType::bf16, payload.reinterpret(DType::u8), scales);
      },
      ThrowsMessage<Error>(HasSubstr("payload is u8[4, 32]")));
  EXPECT_THAT(
      [&] {
        QuantTensor(kRows, {4, 32}, DType::bf16, payload, scales, Tensor::empty({1}, DType::f32));
      },
      ThrowsMessage<Error>(HasSubstr("no global scale")));
  const Tensor meta_scales = Tensor::empty({4, 1}, DType::f32, {DeviceType::meta, 0});
  EXPECT_THAT(
      [&] {
        QuantTensor(kRows, {4, 32}, DType::bf16, payload, meta_scales);
      },
      ThrowsMessage<Error>(HasSubstr("meta")));
}

TEST(QuantTensor, TwoLevelsKeepTheGlobalScale) {
  const Tensor payload = Tensor::empty({2, 32}, DType::f4_e2m1), scales = Tensor::empty({2, 2}, DType::f8_e4m3);
  const QuantTensor q(kNvfp4, {2, 32}, DType::bf16, payload, scales, Tensor::empty({1}, DType::f32));
  EXPECT_TRUE(q.global_scale().defined());
  EXPECT_EQ(q.nbytes(), std::size_t{32 + 4 + 4});
}

TEST(QuantTensor, TransposedViewIsTheSameBytesAsTheTransposedMatrix) {
  const Shape logical{3, 64, 96}, turned{3, 96, 64};
  struct Case {
    QuantFormat format;
    Granularity seen;
  };
  for (const auto& [format, seen] :
       {Case{{}, Granularity::tensor}, Case{kRows, Granularity::column},
        Case{{.granularity = Granularity::column}, Granularity::row}, Case{kMx, Granularity::block}})
    for (const bool stored_transposed : {false, true}) {
      const QuantTensor q = QuantTensor::empty(stored_transposed ? transposed(format) : format, logical, DType::bf16);
      SCOPED_TRACE(q.describe());
      const QuantTensor view = q.transposed_view();
      QuantFormat expected = stored_transposed ? format : transposed(format);
      expected.granularity = seen;
      EXPECT_EQ(view.format(), expected);
      EXPECT_EQ(view.shape(), turned);
      EXPECT_EQ(view.source_dtype(), DType::bf16);
      EXPECT_EQ(view.payload().raw_data(), q.payload().raw_data());
      EXPECT_EQ(view.payload().shape(), q.payload().shape());
      EXPECT_EQ(view.scales().raw_data(), q.scales().raw_data());
      EXPECT_EQ(view.scales().shape(), expected.scales_shape(turned));
      const QuantTensor back = view.transposed_view();
      EXPECT_EQ(back.format(), q.format());
      EXPECT_EQ(back.shape(), q.shape());
      EXPECT_EQ(back.scales().shape(), q.scales().shape());
    }
  const QuantTensor vector = QuantTensor::empty(kRows, {8}, DType::f32);
  EXPECT_THAT([&] { (void)vector.transposed_view(); }, ThrowsMessage<Error>(HasSubstr("no one-level")));
  EXPECT_THAT([] { (void)QuantTensor().transposed_view(); }, ThrowsMessage<Error>(HasSubstr("undefined")));
  const QuantTensor two_levels(kNvfp4, {2, 32}, DType::bf16, Tensor::empty({2, 32}, DType::f4_e2m1),
                               Tensor::empty({2, 2}, DType::f8_e4m3), Tensor::empty({1}, DType::f32));
  EXPECT_THAT([&] { (void)two_levels.transposed_view(); }, ThrowsMessage<Error>(HasSubstr("no one-level")));
}

TEST(ElementFormat, NamesRoundTrip) {
  for (int i = 0; i < kElementFormatCount; ++i) {
    const auto format = static_cast<ElementFormat>(i);
    EXPECT_EQ(element_format_from_string(to_string(format)), format);
  }
  EXPECT_EQ(element_format_from_string("e4m4"), std::nullopt);
}

TEST(ElementFormat, DispatchAcceptsOnlyItsList) {
  int bits = 0;
  dispatch_element<E4m3, E2m1>(ElementFormat::e2m1, "op", [&]<class Element>() { bits = Element::kBits; });
  EXPECT_EQ(bits, 4);
  EXPECT_THAT([] { dispatch_element<E4m3>(ElementFormat::e5m2, "some_op", []<class Element>() {}); },
              ThrowsMessage<Error>(HasSubstr("some_op: element format e5m2")));
}

}  // namespace
}  // namespace quench
