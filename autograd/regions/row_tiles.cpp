#include "autograd/regions/row_tiles.h"

#include <algorithm>
#include <array>
#include <optional>

namespace quench::autograd {
namespace {

// A step has fewer micro-batches, which the pass counts too.
constexpr std::uint64_t kPassesOfTile = std::uint64_t{1} << 20;

// Rows [first, first + count), tile number `index`.
struct Tile {
  std::int64_t index, first, count;

  [[nodiscard]] Tensor of(const Tensor& whole) const { return whole.narrow(0, first, count); }
  [[nodiscard]] std::uint64_t pass(std::uint64_t whole) const {
    return whole + static_cast<std::uint64_t>(index) * kPassesOfTile;
  }
};

std::vector<Tile> tiles_of(std::int64_t rows, std::int64_t most) {
  std::vector<Tile> tiles;
  for (std::int64_t first = 0; first < rows; first += most)
    tiles.push_back({static_cast<std::int64_t>(tiles.size()), first, std::min(most, rows - first)});
  return tiles;
}

// Values of the tiles, and the leaves that the first one uses.
class TilePass {
 public:
  TilePass(const RowRegion& region, const Tensor& x, bool value_needed)
      : region_(region), x_(x), value_needed_(value_needed) {}

  void run(const Tile& tile) {
    std::optional<PassScope> pass;
    if (const auto whole = Tape::current_pass()) pass.emplace(tile.pass(*whole));
    const Tensor y = region_(Variable(tile.of(x_)), tile.first, false).value();
    if (!out_.defined()) {
      const Shape shape{x_.size(0), y.size(1)};
      out_ = value_needed_ ? Tensor::empty(shape, y.dtype(), y.device()) : unstored_value(shape, y);
    }
    if (value_needed_) tile.of(out_).copy_from(y);
  }
  [[nodiscard]] Variable result() const {
    return value_needed_ ? Variable(out_) : Variable(FusedValue::left_out(out_.shape(), out_));
  }

 private:
  const RowRegion& region_;
  Tensor x_, out_;
  bool value_needed_;
};

// Gradients of one tile: of parameters, and of its rows into `dx` if defined.
void run_backward(const RowRegion& region, const Tile& tile, const Tensor& x, const Tensor& dy, const Tensor& dx,
                  std::uint64_t pass) {
  Variable rows(tile.of(x));
  if (dx.defined()) {
    rows.set_gradient(std::make_shared<Gradient>(rows.shape(), dx.dtype(), dx.device(), true));
    rows.gradient()->set_buffer([part = tile.of(dx)] { return part; });
  }
  Tape tape;
  tape.set_pass(tile.pass(pass));
  {
    const TapeScope scope(tape);
    const Variable y = region(rows, tile.first, true);
    if (y.requires_grad()) y.gradient()->contribute(tile.of(dy));
  }
  tape.backward();
  if (dx.defined() && !rows.gradient()->has_value()) tile.of(dx).zero();
}

}  // namespace

Variable in_row_tiles(const RowRegion& region, const Variable& x, const RowTiling& tiling) {
  const Tensor in = x.value();
  QUENCH_CHECK(in.rank() == 2 && in.size(0) > 0 && tiling.rows > 0,
               "in_row_tiles: x is {}, tiles of {} rows; expected a matrix and at least one row", in.describe(),
               tiling.rows);
  const MemoryScope scope(MemoryCategory::activations);
  const std::vector<Tile> tiles = tiles_of(in.size(0), tiling.rows);
  const Tape* tape = Tape::current();
  TilePass pass(region, in, tiling.value_needed || tape == nullptr);
  if (tape == nullptr) {
    for (const Tile& tile : tiles) pass.run(tile);
    return pass.result();
  }
  std::vector<Tape::Input> dependencies{x};
  {
    const PassScope unrecorded(tape->pass());
    {
      const UseCounter counter;
      pass.run(tiles.front());
      for (const auto& gradient : counter.used()) {
        Variable leaf;
        leaf.set_gradient(gradient);
        dependencies.emplace_back(leaf);
      }
    }
    const NoGrad no_grad;
    for (std::size_t i = 1; i < tiles.size() && tiling.value_needed; ++i) pass.run(tiles[i]);
  }
  Variable out = pass.result();
  Tape::record("row tiles", dependencies, std::array{&out}, [&] {
    return [region, saved = Saved(x), tiles, dx_of = x.gradient(), dy_of = out.gradient(), number = tape->pass()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor whole = saved.get(), dy = dy_of->value();
      Tensor dx;
      if (dx_of) dx = Tensor::empty(whole.shape(), dx_of->dtype(), whole.device());
      for (const Tile& tile : tiles) run_backward(region, tile, whole, dy, dx, number);
      if (dx_of) dx_of->contribute(dx);
    };
  });
  return out;
}

}  // namespace quench::autograd
