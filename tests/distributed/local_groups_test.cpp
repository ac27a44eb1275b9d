#include <gtest/gtest.h>

#include <array>
#include <stdexcept>

#include "distributed/process_group.h"
#include "distributed/ranks.h"
#include "distributed/world.h"

namespace quench::distributed {
namespace {

TEST(SingleGroup, CopiesWhereItMust) {
  const auto group = single_group("all", Device{});
  const Tensor a = Tensor::from_values<float>({3}, std::vector<float>{1, 2, 3});
  const Tensor b = Tensor::zeros({3}, DType::f32);
  group->all_gather(a, b, "a").wait();
  EXPECT_EQ(b.data<float>()[2], 3);
  b.data<float>()[2] = 7;
  group->reduce_scatter(b, a, ReduceOp::sum, "a").wait();
  EXPECT_EQ(a.data<float>()[2], 7);
  group->all_reduce(a, ReduceOp::max, "a").wait();
  group->all_to_all(a, b, "a").wait();
  EXPECT_EQ(b.data<float>()[2], 7);
  group->barrier("end");
  EXPECT_EQ(group->log().last_finished(), 5u);
  EXPECT_FALSE(group->log().oldest_unfinished());
  EXPECT_EQ(group->log().latest_enqueued()->describe(), "barrier #5 of 'end'");
  EXPECT_EQ(group->traffic()[static_cast<std::size_t>(CollectiveKind::all_gather)].bytes, 0);
}

TEST(SingleRanks, AreAWorldOfOne) {
  const Ranks& ranks = *Ranks::single();
  EXPECT_TRUE(ranks.is_single());
  EXPECT_TRUE(ranks.is_first());
  for (const auto& group :
       {ranks.world, ranks.shard, ranks.replicate, ranks.experts, ranks.expert_shard, ranks.host, ranks.saving}) {
    EXPECT_EQ(group->rank(), 0);
    EXPECT_EQ(group->size(), 1);
  }
}

TEST(SingleRanks, LeaveTheirGroupsAlone) {
  const Ranks& ranks = *Ranks::single();
  const std::uint64_t before = ranks.host->log().last_enqueued();
  std::array<std::int64_t, 2> numbers = {3, 4};
  all_reduce_numbers(*ranks.host, numbers, ReduceOp::sum, "numbers");
  EXPECT_EQ(numbers, (std::array<std::int64_t, 2>{3, 4}));
  all_reduce(*ranks.world, Tensor::empty({2}, DType::f32, Device{DeviceType::meta}), ReduceOp::sum, "loss");
  EXPECT_EQ(exchange_texts(*ranks.host, "x", "texts"), std::vector<std::string>{"x"});
  int runs = 0;
  together(ranks, "work", [&] { ++runs; });
  first_rank_first(*ranks.host, "work", [&] { ++runs; });
  EXPECT_EQ(runs, 2);
  EXPECT_THROW(together(ranks, "work", [] { throw std::logic_error("its own"); }), std::logic_error);
  EXPECT_EQ(ranks.host->log().last_enqueued(), before);
}

TEST(SingleRanks, TakeTensorsOfAnyDevice) {
  const Tensor tensor = Tensor::empty({2}, DType::f32, Device{DeviceType::meta});
  EXPECT_NO_THROW(Ranks::single()->world->all_reduce(tensor, ReduceOp::sum, "loss").wait());
}

TEST(MetaGroup, CountsBytesOfAnyRank) {
  const auto group = meta_group("all", 3, 512);
  const Tensor local = Tensor::empty({10}, DType::bf16, Device{DeviceType::meta});
  const Tensor whole = Tensor::empty({5120}, DType::bf16, Device{DeviceType::meta});
  group->all_gather(local, whole, "weights").wait();
  group->reduce_scatter(whole, local, ReduceOp::sum, "gradients").wait();
  group->all_reduce(whole, ReduceOp::sum, "norms").wait();
  EXPECT_EQ(group->traffic()[static_cast<std::size_t>(CollectiveKind::all_gather)].bytes, 20 * 511);
  EXPECT_EQ(group->traffic()[static_cast<std::size_t>(CollectiveKind::reduce_scatter)].bytes, 20 * 511);
  EXPECT_EQ(group->traffic()[static_cast<std::size_t>(CollectiveKind::all_reduce)].bytes, 2 * 20 * 511);
  EXPECT_EQ(group->traffic()[static_cast<std::size_t>(CollectiveKind::all_reduce)].calls, 1);
}

TEST(Groups, RefuseWhatDoesNotFit) {
  const auto group = meta_group("all", 0, 2);
  const Device meta{DeviceType::meta};
  const Tensor three = Tensor::empty({3}, DType::f32, meta), seven = Tensor::empty({7}, DType::f32, meta);
  EXPECT_THROW((void)group->all_gather(three, seven, "a"), Error);
  EXPECT_THROW((void)group->reduce_scatter(seven, three, ReduceOp::sum, "a"), Error);
  EXPECT_THROW((void)group->all_to_all(seven, seven, "a"), Error);
  EXPECT_THROW((void)group->broadcast(three, 2, "a"), Error);
  EXPECT_THROW((void)group->send(three, 0, "a"), Error);
  EXPECT_THROW((void)group->all_reduce(Tensor::empty({2}, DType::u8, meta), ReduceOp::sum, "a"), Error);
  EXPECT_THROW((void)group->all_reduce(Tensor::empty({2}, DType::f32), ReduceOp::sum, "a"), Error);
  const Tensor square = Tensor::empty({4, 4}, DType::f32, meta);
  EXPECT_THROW((void)group->all_reduce(square.transpose(0, 1), ReduceOp::sum, "a"), Error);
  const std::vector<std::int64_t> wrong = {1, 1}, right = {1, 2};
  EXPECT_THROW((void)group->all_to_all(three, three, wrong, right, "a"), Error);
}

TEST(Worlds, WithoutOthers) {
  const auto alone = World::alone(Device{});
  EXPECT_EQ(alone->size(), 1);
  EXPECT_EQ(alone->exchange("host", "x"), std::vector<std::string>{"x"});
  const auto planned = World::planned(5, 64);
  EXPECT_EQ(planned->rank(), 5);
  const std::vector<int> ranks = {4, 5};
  EXPECT_EQ(planned->make_group("pair", ranks)->rank(), 1);
}

}  // namespace
}  // namespace quench::distributed
