#include "engine/page_pool.h"

#include <gtest/gtest.h>

#include "core/system/check.h"

namespace quench {
namespace {

using Pages = std::vector<std::int32_t>;
using Tokens = std::vector<std::int32_t>;

TEST(PagePool, PrefixesAreFoundByTheirTokensAlone) {
  PagePool pool(6, 2);
  const Pages own{*pool.take(), *pool.take(), *pool.take()};
  const Tokens tokens{1, 2, 3, 4, 5, 6};
  pool.publish(own[0], std::nullopt, std::span(tokens).first(2));
  pool.publish(own[1], own[0], std::span(tokens).subspan(2, 2));
  EXPECT_EQ(pool.take_prefix(tokens), (Pages{own[0], own[1]}));
  EXPECT_EQ(pool.take_prefix(Tokens{1, 2, 3}), Pages{own[0]});
  EXPECT_EQ(pool.take_prefix(Tokens{3, 4}), Pages{});  // not at the beginning
  EXPECT_EQ(pool.take_prefix(Tokens{1, 2, 4, 3}), Pages{own[0]});
  EXPECT_EQ(pool.free(), 3);
}

TEST(PagePool, AdaptersHavePagesOfTheirOwn) {
  PagePool pool(4, 1);
  const Pages own{*pool.take(), *pool.take()};
  pool.publish(own[0], std::nullopt, Tokens{7});
  pool.publish(own[1], std::nullopt, Tokens{7}, 1);
  EXPECT_EQ(pool.take_prefix(Tokens{7}), Pages{own[0]});
  EXPECT_EQ(pool.take_prefix(Tokens{7}, 1), Pages{own[1]});
  EXPECT_EQ(pool.take_prefix(Tokens{7}, 0), Pages{});
}

TEST(PagePool, PagesStayUntilTheirPlaceIsNeeded) {
  PagePool pool(3, 1);
  const Pages own{*pool.take(), *pool.take()};
  pool.publish(own[0], std::nullopt, Tokens{7});
  pool.publish(own[1], own[0], Tokens{8});
  pool.release(own);
  EXPECT_EQ(pool.free(), 3);
  EXPECT_EQ(pool.take_prefix(Tokens{7, 8}), own);
  pool.release(own);
  EXPECT_NE(*pool.take(), own[0]);  // the page without content
  EXPECT_EQ(*pool.take(), own[1]);  // the later page of the sequence
  EXPECT_EQ(pool.take_prefix(Tokens{7, 8}), Pages{own[0]});
  EXPECT_EQ(pool.take(), std::nullopt);
}

TEST(PagePool, APageHasItsUsersBeforeItIsFree) {
  PagePool pool(1, 1);
  const Pages own{*pool.take()};
  pool.publish(own[0], std::nullopt, Tokens{7});
  EXPECT_EQ(pool.take_prefix(Tokens{7}), own);
  pool.release(own);
  EXPECT_EQ(pool.free(), 0);
  pool.release(own);
  EXPECT_EQ(pool.free(), 1);
}

// The second page of equal content stays its owner's.
TEST(PagePool, EqualContentIsKnownOnce) {
  PagePool pool(2, 1);
  const std::int32_t first = *pool.take(), second = *pool.take();
  pool.publish(first, std::nullopt, Tokens{7});
  pool.publish(second, std::nullopt, Tokens{7});
  EXPECT_EQ(pool.take_prefix(Tokens{7}), Pages{first});
  pool.release(Pages{second});
  EXPECT_EQ(pool.take(), second);
}

}  // namespace
}  // namespace quench
