#include "distributed/mesh.h"

#include <gmock/gmock.h>

#include <map>

#include "core/system/check.h"

namespace quench::distributed {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Mesh, EveryAxisSplitsAllRanks) {
  for (const MeshSizes& sizes : {MeshSizes{}, MeshSizes{.replicate = 2, .shard = 3, .context = 2, .expert = 3},
                                 MeshSizes{.shard = 4, .context = 2, .expert = 8},
                                 MeshSizes{.replicate = 2, .shard = 3, .context = 2, .tensor = 4},
                                 MeshSizes{.replicate = 2, .shard = 3, .tensor = 2, .pipeline = 3}}) {
    for (const MeshAxis& axis : mesh_axes(sizes)) {
      std::map<int, std::vector<int>> groups;
      for (int rank = 0; rank < sizes.world(); ++rank) {
        const std::vector<int> members = axis.ranks(rank);
        ASSERT_EQ(std::ssize(members), axis.size);
        EXPECT_EQ(members[static_cast<std::size_t>(axis.place(rank))], rank);
        const auto [known, added] = groups.emplace(axis.number(rank), members);
        EXPECT_EQ(known->second, members) << axis.name;
      }
      EXPECT_EQ(std::ssize(groups) * axis.size, sizes.world());
    }
  }
}

TEST(Mesh, PartsOfASequenceAreNeighbours) {
  const MeshSizes sizes{.replicate = 2, .shard = 2, .context = 2, .expert = 2};
  const auto ranks = [&](std::string_view axis, int rank) { return mesh_axis_of(sizes, axis).ranks(rank); };
  EXPECT_THAT(ranks(mesh_axis::kContext, 5), ElementsAre(4, 5));
  EXPECT_THAT(ranks(mesh_axis::kShard, 5), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(ranks(mesh_axis::kReplicate, 5), ElementsAre(1, 5));
  EXPECT_THAT(ranks(mesh_axis::kExperts, 6), ElementsAre(6, 7));
  EXPECT_THAT(ranks(mesh_axis::kExpertShard, 6), ElementsAre(4, 6));
  EXPECT_EQ(sizes.data(), 4);
}

TEST(Mesh, SlicesOfWeightsAreNeighbours) {
  const MeshSizes sizes{.replicate = 2, .shard = 2, .context = 2, .tensor = 2};
  const auto ranks = [&](std::string_view axis, int rank) { return mesh_axis_of(sizes, axis).ranks(rank); };
  EXPECT_THAT(ranks(mesh_axis::kTensor, 5), ElementsAre(4, 5));
  EXPECT_THAT(ranks(mesh_axis::kContext, 5), ElementsAre(5, 7));
  EXPECT_THAT(ranks(mesh_axis::kShard, 5), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(ranks(mesh_axis::kReplicate, 5), ElementsAre(5, 13));
  EXPECT_EQ(sizes.world(), 16);
  EXPECT_EQ(sizes.data(), 4);
  EXPECT_EQ(describe_sizes(sizes), "16 = replicate 2 x shard 2 x context 2 x tensor 2");
  EXPECT_THAT(describe_mesh(sizes, 16),
              HasSubstr("tensor       2 ranks (0,1; 2,3; ...) within a node: all-gathers token rows"));
}

TEST(Mesh, StagesAreOutermost) {
  const MeshSizes sizes{.replicate = 2, .shard = 2, .tensor = 2, .pipeline = 2};
  const auto ranks = [&](std::string_view axis, int rank) { return mesh_axis_of(sizes, axis).ranks(rank); };
  EXPECT_THAT(ranks(mesh_axis::kPipeline, 5), ElementsAre(5, 13));
  EXPECT_THAT(ranks(mesh_axis::kReplicate, 13), ElementsAre(9, 13));
  EXPECT_EQ(sizes.world(), 16);
  EXPECT_EQ(sizes.data(), 4);
  EXPECT_EQ(describe_sizes(sizes), "16 = replicate 2 x shard 2 x context 1 x tensor 2 x pipeline 2");
  EXPECT_THAT(describe_mesh(sizes, 8), HasSubstr("pipeline     2 ranks (0,8; 1,9; ...) over 2 nodes: stages send"));
}

TEST(Mesh, ReportSaysWhoTalksOverWhichLink) {
  const MeshSizes sizes{.replicate = 2, .shard = 4, .context = 2};
  EXPECT_EQ(describe_sizes(sizes), "16 = replicate 2 x shard 4 x context 2");
  const std::string text = describe_mesh(sizes, 8);
  EXPECT_THAT(text, HasSubstr("shard        8 ranks (0-7; 8-15) within a node: all-gathers weights"));
  EXPECT_THAT(text, HasSubstr("replicate    2 ranks (0,8; 1,9; ...) over 2 nodes: sums gradients"));
  EXPECT_THAT(text, HasSubstr("context      2 ranks (0,1; 2,3; ...) within a node: all-gathers keys and values"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("expert")));
  EXPECT_EQ(describe_mesh({}, 8), "");
}

TEST(Mesh, SizesThatDoNotFitAreRefused) {
  EXPECT_THROW((void)mesh_axes({.shard = 0}), Error);
  EXPECT_THROW((void)mesh_axes({.shard = 3, .expert = 2}), Error);
  EXPECT_THROW((void)mesh_axes({.tensor = 0}), Error);
  EXPECT_THROW((void)mesh_axes({.pipeline = 0}), Error);
  EXPECT_THROW((void)mesh_axis_of({}, "stages"), Error);
}

}  // namespace
}  // namespace quench::distributed
