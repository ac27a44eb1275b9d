#include "autograd/activation_policy.h"

#include <gtest/gtest.h>

#include <string>

namespace quench::autograd {
namespace {

// One letter a layer: kept, offloaded, recomputed.
std::string letters(const ActivationPolicy& plan) {
  std::string result;
  for (std::int64_t layer = 0; layer < plan.layers(); ++layer) {
    const SavePolicy what = plan.of(layer);
    result += what == SavePolicy::keep ? 'k' : what == SavePolicy::offload ? 'o' : 'r';
  }
  return result;
}

// Longest run of neighbours with the same letter.
std::int64_t longest_run(const std::string& text, char letter) {
  std::int64_t longest = 0, run = 0;
  for (const char c : text) longest = std::max(longest, run = c == letter ? run + 1 : 0);
  return longest;
}

TEST(ActivationPolicy, SpreadsOffloadedLayersAndLeavesTheLast) {
  for (const std::int64_t layers : {2, 7, 8, 32})
    for (std::int64_t wanted = 1; wanted < layers; ++wanted) {
      const ActivationPolicy plan(layers, wanted, 0);
      SCOPED_TRACE(letters(plan));
      EXPECT_EQ(plan.count(SavePolicy::offload), wanted);
      EXPECT_EQ(plan.count(SavePolicy::recompute), 0);
      EXPECT_EQ(plan.of(0), SavePolicy::offload);
      EXPECT_EQ(plan.of(layers - 1), SavePolicy::keep);
      if (2 * wanted <= layers - 1) {
        EXPECT_EQ(longest_run(letters(plan), 'o'), 1);
      }
    }
}

TEST(ActivationPolicy, RecomputesAmongTheLayersThatRemain) {
  for (const std::int64_t layers : {1, 2, 5, 8, 28, 32})
    for (std::int64_t away = 0; away <= layers; ++away)
      for (std::int64_t again = 0; again <= layers + 2; ++again) {
        const ActivationPolicy plan(layers, away, again), alone(layers, away, 0);
        SCOPED_TRACE(letters(plan));
        EXPECT_EQ(plan.count(SavePolicy::offload), away);
        EXPECT_EQ(plan.count(SavePolicy::recompute), std::min(again, layers - away));
        EXPECT_EQ(plan.of(layers - 1) == SavePolicy::keep, away + again < layers);
        for (std::int64_t layer = 0; layer < layers; ++layer)
          EXPECT_EQ(plan.of(layer) == SavePolicy::offload, alone.of(layer) == SavePolicy::offload) << layer;
        if (away == 0 && again > 0 && 2 * again <= layers - 1) {
          EXPECT_EQ(longest_run(letters(plan), 'r'), 1);
        }
      }
}

TEST(ActivationPolicy, RecomputedLayersFollowOffloadedLayers) {
  EXPECT_EQ(letters({8, 2, 0}), "okkkokkk");
  EXPECT_EQ(letters({8, 2, 1}), "orkkokkk");
  EXPECT_EQ(letters({8, 2, 2}), "orkkorkk");
  EXPECT_EQ(letters({8, 2, 4}), "orkrorrk");
  EXPECT_EQ(letters({8, 0, 2}), "rkkkrkkk");
}

TEST(ActivationPolicy, CountsBeyondTheLayersAreClamped) {
  EXPECT_EQ(letters({4, 9, 9}), "oooo");
  EXPECT_EQ(letters({4, 3, 9}), "ooor");
  EXPECT_EQ(letters({4, 0, 9}), "rrrr");
  EXPECT_EQ(letters({4, 0, 3}), "rrrk");
}

TEST(ActivationPolicy, UnknownLayersKeepTheirInput) {
  EXPECT_EQ(ActivationPolicy().of(0), SavePolicy::keep);
  const ActivationPolicy all(2, 2, 0);
  EXPECT_EQ(all.of(-1), SavePolicy::keep) << "no layer runs";
  EXPECT_EQ(all.of(2), SavePolicy::keep);
}

// Offloaded layers keep it first, whose memory is the host's.
TEST(ActivationPolicy, KeepsAttentionOfOffloadedLayersFirst) {
  for (const std::int64_t layers : {1, 5, 8, 32})
    for (std::int64_t away = 0; away <= layers; ++away)
      for (std::int64_t wanted = 0; wanted <= layers + 2; ++wanted) {
        const ActivationPolicy plan(layers, away, 0, wanted);
        std::int64_t kept = 0, of_offloaded = 0;
        for (std::int64_t layer = 0; layer < layers; ++layer) {
          if (!plan.keeps_attention(layer)) continue;
          ++kept;
          of_offloaded += plan.of(layer) == SavePolicy::offload ? 1 : 0;
        }
        EXPECT_EQ(kept, std::min(wanted, layers));
        EXPECT_EQ(kept, plan.kept_attention());
        EXPECT_EQ(of_offloaded, std::min(kept, away));
        EXPECT_FALSE(plan.keeps_attention(-1));
        EXPECT_FALSE(plan.keeps_attention(layers));
      }
}

}  // namespace
}  // namespace quench::autograd
