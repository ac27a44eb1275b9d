// Muon where processes hold matrices by rows: threads that exchange rows stand for them.

#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <thread>

#include "core/number/random.h"
#include "nn/optim/muon.h"

namespace quench::nn {
namespace {

// The parts that each process gives all of them, while a barrier holds.
class Mailbox {
 public:
  explicit Mailbox(int processes) : gate_(processes), parts_(static_cast<std::size_t>(processes)) {}

  class End final : public MatrixAllToAll {
   public:
    End(Mailbox& box, Sharding sharding) : box_(box), sharding_(sharding) {}
    [[nodiscard]] Sharding sharding() const override { return sharding_; }
    void exchange(const Tensor& input, const Tensor& output, std::span<const std::int64_t> send_counts,
                  std::span<const std::int64_t> receive_counts) override {
      auto& own = box_.parts_[static_cast<std::size_t>(sharding_.index)];
      own.clear();
      std::int64_t at = 0;
      for (const std::int64_t count : send_counts) own.push_back(input.narrow(0, std::exchange(at, at + count), count));
      EXPECT_EQ(at, input.numel());
      box_.gate_.arrive_and_wait();
      at = 0;
      for (std::size_t from = 0; from < receive_counts.size(); ++from) {
        const Tensor& part = box_.parts_[from][static_cast<std::size_t>(sharding_.index)];
        ASSERT_EQ(part.numel(), receive_counts[from]);
        output.narrow(0, std::exchange(at, at + part.numel()), part.numel()).copy_from(part);
      }
      EXPECT_EQ(at, output.numel());
      box_.gate_.arrive_and_wait();
    }

   private:
    Mailbox& box_;
    Sharding sharding_;
  };

 private:
  std::barrier<> gate_;
  std::vector<std::vector<Tensor>> parts_;
};

struct ShardedModel {
  explicit ShardedModel(DType dtype, const Sharding& sharding = {}, const Sharding& expert_sharding = {}) {
    const auto add = [&](const char* name, const Shape& shape, std::vector<ParameterPiece> pieces,
                         std::int64_t experts = 0) {
      Parameter& p = parameters.emplace_back(
          make_parameter(shape, {.dtype = dtype, .sharding = sharding, .expert_sharding = expert_sharding},
                         Initializer::normal, 0.02f, experts));
      p.name = name;
      p.pieces = std::move(pieces);
      const Tensor value = p.variable.value();
      fill(value, p.shard.row_begin * shape[1], 3);
    };
    parameters.reserve(5);
    // Pieces that shards cut; a matrix of fewer rows than processes; a tall one.
    add("fused.weight", {13, 8}, {{"q", 0, 5}, {"k", 5, 4}, {"v", 9, 4}});
    add("small.weight", {2, 6}, {{"small", 0, 2}});
    add("tall.weight", {29, 4}, {});
    // Pieces of one shape: two rounds of several processes and one that is left.
    add("stacked.weight", {20, 8}, {{"a", 0, 4}, {"b", 4, 4}, {"c", 8, 4}, {"d", 12, 4}, {"e", 16, 4}});
    // Gate and up of four experts.
    std::vector<ParameterPiece> gate_up;
    for (std::int64_t row = 0; row < 24; row += 3) gate_up.push_back({fmt::format("expert {}", row), row, 3});
    add("experts.weight", {24, 8}, std::move(gate_up), 4);
  }
  static void fill(const Tensor& value, std::int64_t first, std::uint64_t seed) {
    for (std::int64_t i = 0; i < value.numel(); ++i) {
      const auto x = static_cast<float>(hash64(fmt::format("{} {}", seed, first + i)) % 2001) / 1000.0f - 1.0f;
      if (value.dtype() == DType::f32)
        value.data<float>()[i] = x;
      else
        value.data<bfloat16>()[i] = bfloat16(x);
    }
  }
  std::vector<Parameter*> pointers() {
    std::vector<Parameter*> all;
    for (Parameter& p : parameters) all.push_back(&p);
    return all;
  }
  void train(const std::shared_ptr<MatrixAllToAll>& rows, bool master) {
    Muon muon(pointers(), {.master_weights = master, .rows = rows});
    Tensor one = Tensor::empty({1}, DType::f32);
    one.data<float>()[0] = 1.0f;
    for (int step = 1; step <= 3; ++step) {
      for (Parameter& p : parameters) {
        const Tensor gradient = Tensor::empty(p.variable.value().shape(), DType::f32);
        fill(gradient, p.shard.row_begin * p.global_shape[1], static_cast<std::uint64_t>(10 + step));
        p.variable.gradient()->contribute(gradient);
      }
      // In two parts, as the parameters that the next pass reads first are updated first.
      muon.step(0.02, step, one, {0, 1});
      muon.step(0.02, step, one, {1, 5});
      muon.zero_grad();
    }
  }
  std::vector<Parameter> parameters;
};

TEST(MuonOnShards, GivesTheBitsOfWholeMatrices) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool master : {false, true})  // false: bf16 is rounded stochastically
      for (const auto& [processes, parts] : {std::pair(2, 1), {3, 1}, {5, 1}, {4, 2}, {4, 4}, {6, 2}}) {
        SCOPED_TRACE(
            fmt::format("{} master {} processes {} experts on {}", to_string(dtype), master, processes, parts));
        ShardedModel whole(dtype);
        whole.train(nullptr, master);
        Mailbox box(processes);
        std::vector<std::thread> threads;
        for (int index = 0; index < processes; ++index)
          threads.emplace_back([&, index, processes = processes, parts = parts] {
            const Sharding sharding{index, processes};
            ShardedModel part(dtype, sharding, {index / parts, processes / parts, index % parts, parts});
            part.train(std::make_shared<Mailbox::End>(box, sharding), master);
            for (std::size_t i = 0; i < part.parameters.size(); ++i) {
              const Parameter& p = part.parameters[i];
              const Tensor got = p.variable.value();
              const Tensor wanted =
                  whole.parameters[i].variable.value().narrow(0, p.shard.row_begin, p.shard.rows).clone();
              EXPECT_EQ(std::memcmp(got.raw_data(), wanted.raw_data(), got.nbytes()), 0) << p.name << ", " << index;
            }
          });
        for (std::thread& thread : threads) thread.join();
      }
}

// A piece of a fused parameter steps as a parameter of its own does.
TEST(MuonOnShards, PiecesAreMatricesOfTheirOwn) {
  ShardedModel fused(DType::f32);
  fused.train(nullptr, false);
  ShardedModel alone(DType::f32);
  Parameter& p = alone.parameters[0];
  const ParameterPiece k = p.pieces[1];
  Parameter single = make_parameter({k.rows, 8}, {});
  single.name = "k.weight";
  ShardedModel::fill(single.variable.value(), k.row_begin * 8, 3);
  Muon muon({&single}, {});
  Tensor one = Tensor::empty({1}, DType::f32);
  one.data<float>()[0] = 1.0f;
  for (int step = 1; step <= 3; ++step) {
    const Tensor gradient = Tensor::empty({k.rows, 8}, DType::f32);
    ShardedModel::fill(gradient, k.row_begin * 8, static_cast<std::uint64_t>(10 + step));
    single.variable.gradient()->contribute(gradient);
    muon.step(0.02, step, one);
    muon.zero_grad();
  }
  const Tensor got = fused.parameters[0].variable.value().narrow(0, k.row_begin, k.rows).clone();
  EXPECT_EQ(std::memcmp(got.raw_data(), single.variable.value().raw_data(), got.nbytes()), 0);
}

}  // namespace
}  // namespace quench::nn
